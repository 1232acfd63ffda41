#!/usr/bin/env bash
# Within a release's folder: debian/tests by autopkgtest, which installs the packages and makes a cluster as Debian does.
#
#   autopkgtest.sh VERSION   of PostgreSQL
set -uo pipefail
# shellcheck source=test/packages/checks.sh
. /mnt/test/packages/checks.sh

check 'apt installs autopkgtest' install autopkgtest || exit 1
autopkgtest --summary-file=/tmp/summary /tmp/current/*.deb /tmp/current/queue-jobs_*.dsc -- null >/tmp/autopkgtest.log 2>&1
while read -r test outcome; do
    if [ "$outcome" = PASS ]; then
        echo "ok - debian/tests/$test: $(grep -cE '^ok [0-9]+ |^test .* ok ' /tmp/autopkgtest.log) regression and isolation tests"
    else
        echo "not ok - debian/tests/$test: $outcome"
    fi
done </tmp/summary
grep -q PASS /tmp/summary || tail -n 60 /tmp/autopkgtest.log | sed 's/^/#   /'
