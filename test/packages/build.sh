#!/usr/bin/env bash
# Within a release's folder: builds Debian's packages of the released version and of this tree. The sources are in
# /tmp/released and /tmp/current, a folder with debian/ in it each; the packages come beside them.
#
#   build.sh VERSION   of PostgreSQL
set -uo pipefail
# shellcheck source=test/packages/checks.sh
. /mnt/test/packages/checks.sh
pg=$1

check 'apt installs what builds packages' install dpkg-dev debhelper fakeroot postgresql-server-dev-all || exit 1
for which in released current; do
    cd "/tmp/$which"/*/debian/.. || exit 1
    # debian/control in the repository names bookworm's version.
    check "pg_buildext updatecontrol for PostgreSQL $pg ($which)" env PG_UPDATECONTROL=yes pg_buildext updatecontrol
    grep -q "^Package: postgresql-$pg-queue-jobs$" debian/control || { echo "not ok - debian/control is for $pg"; exit 1; }
    check "its build dependencies ($which)" apt-get -qy build-dep . || exit 1
    check "dpkg-buildpackage ($which)" dpkg-buildpackage --no-sign --build=full || exit 1
done
