#!/usr/bin/env bash
# Within a release's folder: the images of packaging/Dockerfile, built by buildah, whose RUN needs no more than a chroot. No registry can be reached, so the
# base is one of our own: Debian's packages in the folders and with the variables that the official image has, and an entrypoint that does what that one's
# documentation says of initdb and /docker-entrypoint-initdb.d. The server's image is run: a job runs in it. With 18, a server that has the extension in no
# folder of its own gets it from the other image, mounted read-only, by the settings that CloudNativePG makes.
#
#   container.sh VERSION   of PostgreSQL
set -uo pipefail
# shellcheck source=test/packages/checks.sh
. /mnt/test/packages/checks.sh
pg=$1

check 'apt installs buildah and debootstrap' install buildah netavark debootstrap || exit 1
mkdir -p /etc/containers
# Not in this folder: it is an overlay itself.
printf '[storage]\ndriver = "overlay"\ngraphroot = "/tmp/containers"\nrunroot = "/tmp/containers-run"\n' >/etc/containers/storage.conf
printf '{"default": [{"type": "insecureAcceptAnything"}]}\n' >/etc/containers/policy.json
# No higher limits than this machine gives.
printf '[containers]\ndefault_ulimits = ["nofile=%s:%s", "nproc=%s:%s"]\n' "$(ulimit -Hn)" "$(ulimit -Hn)" "$(ulimit -Hu)" "$(ulimit -Hu)" >/etc/containers/containers.conf
export BUILDAH_ISOLATION=chroot

# ---- the base ----

. /etc/os-release
base=$(buildah from scratch) || exit 1
root=$(buildah mount "$base") || exit 1
check "Debian $VERSION_CODENAME with postgresql-$pg, as base" \
    debootstrap --variant=minbase --cache-dir=/tmp/archives --include="postgresql-$pg" "$VERSION_CODENAME" "$root" http://deb.debian.org/debian /usr/share/debootstrap/scripts/sid || exit 1
echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/90queue_jobs"
rm -rf "$root/etc/postgresql/$pg" "$root/var/lib/postgresql/$pg"
cat >"$root/usr/local/bin/docker-entrypoint.sh" <<'SH'
#!/bin/bash
set -e
if [ "$(id -u)" = 0 ]; then
    install -d -o postgres -g postgres "$PGDATA" /var/run/postgresql
    exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    initdb -U postgres --auth=trust >/dev/null
    pg_ctl -s -w -o "-c listen_addresses=''" start
    for file in /docker-entrypoint-initdb.d/*.sql; do psql -X -v ON_ERROR_STOP=1 -U postgres -d postgres -f "$file"; done
    pg_ctl -s -w -m fast stop
fi
exec "$@"
SH
chmod 755 "$root/usr/local/bin/docker-entrypoint.sh"
mkdir "$root/docker-entrypoint-initdb.d"
buildah umount "$base" >/dev/null
buildah config --env "PG_MAJOR=$pg" --env "PGDATA=/var/lib/postgresql/$pg/docker" --env "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/$pg/bin" \
    --entrypoint '["docker-entrypoint.sh"]' --cmd postgres "$base"
check 'the base is an image' buildah commit --rm "$base" "localhost/postgres:$pg" || exit 1

# ---- the server's image ----

build() { buildah build --layers --pull=never -f packaging/Dockerfile --build-arg "PG_MAJOR=$pg" --build-arg "BASE=localhost/postgres:$pg" "$@" .; }
cd /tmp/current/*/debian/.. || exit 1
check 'the server'"'"'s image is built' build -t "queue_jobs:$pg" || exit 1
server=$(buildah from --pull=never "localhost/queue_jobs:$pg") || exit 1
root=$(buildah mount "$server")
is '… without what has built it' "$(ls "$root/usr/bin/gcc" "$root/usr/src/queue_jobs" 2>/dev/null)" ''
buildah run "$server" -- docker-entrypoint.sh postgres -c listen_addresses= >/tmp/server.log 2>&1 &
inside() { buildah run "$server" -- psql -XAtq -v ON_ERROR_STOP=1 -U postgres "$@"; }
becomes 'a server starts in a new data directory, with the library preloaded' queue_jobs inside -c 'SHOW shared_preload_libraries' || cat /tmp/server.log
is 'the extension is there' "$(inside -c "SELECT extversion FROM pg_extension WHERE extname = 'queue_jobs'")" "$(sed -n "s/^default_version = '\(.*\)'/\1/p" /mnt/queue_jobs.control)"
work="CREATE TABLE ran (n int); CREATE FUNCTION work(n int) RETURNS void LANGUAGE sql AS 'INSERT INTO ran SELECT work.n';
SELECT queue_jobs.define_worker('work', 'public.work'); SELECT queue_jobs.enqueue('work', '{\"n\": 42}')"
check 'a worker is defined, a job enqueued' inside -c "$work"
becomes 'it runs' 42 inside -c 'SELECT n FROM ran'
check 'the server stops' buildah run "$server" -- bash -c 'setpriv --reuid=postgres --regid=postgres --clear-groups pg_ctl -w -m fast stop'
wait
buildah rm "$server" >/dev/null

# ---- the extension's image ----

if [ "$pg" -lt 18 ]; then
    skip 'the image for CloudNativePG' "PostgreSQL $pg has no extension_control_path"
    exit
fi
check 'the extension'"'"'s image is built' build -t "queue_jobs-extension:$pg" --target extension || exit 1
image=$(buildah from --pull=never "localhost/queue_jobs-extension:$pg") || exit 1
root=$(buildah mount "$image")
version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" /mnt/queue_jobs.control)
is '… of these files' "$(cd "$root" && find . -type f | sort | paste -sd ' ')" \
    "./lib/queue_jobs.so ./licenses/queue_jobs/LICENSE ./share/extension/queue_jobs--0.1.0--$version.sql ./share/extension/queue_jobs--0.1.0.sql ./share/extension/queue_jobs--$version.sql ./share/extension/queue_jobs.control"
mkdir -p /extensions/queue-jobs
mount --bind "$root" /extensions/queue-jobs && mount -o remount,bind,ro /extensions/queue-jobs || exit 1
is 'this server has it in no folder of its own' "$(find /usr -name 'queue_jobs*')" ''
cluster "$pg" || exit 1
# As CloudNativePG writes them for an extension "queue-jobs" with defaults.
# shellcheck disable=SC2016   # the server's
pg_conftool "$pg" test set extension_control_path '$system:/extensions/queue-jobs/share'
# shellcheck disable=SC2016
pg_conftool "$pg" test set dynamic_library_path '$libdir:/extensions/queue-jobs/lib'
check 'a server starts that preloads it from there' pg_ctlcluster "$pg" test start || cat /var/log/postgresql/*test.log
check 'CREATE EXTENSION' sql postgres -c 'CREATE EXTENSION queue_jobs'
check 'a worker is defined, a job enqueued' sql postgres -c "$work"
becomes 'it runs, by an executor that has found the library' 42 sql postgres -c 'SELECT n FROM ran'
check 'a schedule' sql postgres -c "SELECT queue_jobs.schedule('tick', '* * * * * *', command => 'INSERT INTO ran VALUES (43)')"
becomes 'it ticks' t sql postgres -c 'SELECT count(*) > 1 FROM ran WHERE n = 43'
pg_ctlcluster "$pg" test stop -m fast
umount /extensions/queue-jobs
buildah rm "$image" >/dev/null
