#!/usr/bin/env bash
# Within a release's folder, which has neither systemd nor what builds packages: the dashboard's package, its files, unit and man page; it shows a
# queue of a cluster as Debian makes it, by peer authentication; an upgrade restarts it, and nothing starts it before the administrator does.
#
#   dashboard.sh VERSION   of PostgreSQL
set -uo pipefail
# shellcheck source=test/packages/checks.sh
. /mnt/test/packages/checks.sh
pg=$1

check 'queue-jobs-web is installed' install /tmp/current/queue-jobs-web_*.deb || exit 1
# /lib in bookworm, /usr/lib afterwards.
unit=$(dpkg -L queue-jobs-web | grep -E '^(/usr)?/lib/systemd/system/queue_jobs_web.service$')
is 'its files' "$(dpkg -L queue-jobs-web | grep -v '^/usr/share/doc/' | while read -r file; do [ -d "$file" ] || echo "$file"; done | sort)" \
    "$(printf '%s\n' /usr/bin/queue_jobs_web /usr/share/man/man1/queue_jobs_web.1.gz "$unit" | sort)"
version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" /mnt/queue_jobs.control)
is 'its version' "$(queue_jobs_web --version)" "queue_jobs_web $version"

check 'apt installs systemd and man' install systemd man-db
check 'systemd-analyze finds no fault in the unit' systemd-analyze verify "$unit"
is '… and prints nothing' "$(systemd-analyze verify "$unit" 2>&1)" ''
is 'it is not enabled' "$(find /etc/systemd -name 'queue_jobs_web*')" ''
is 'the man page has no faults' "$(MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z /usr/share/man/man1/queue_jobs_web.1.gz 2>&1 >/dev/null)" ''
check '… and is found' bash -c 'man queue_jobs_web | grep -q -- --read-only'

# ---- with a database ----

check 'the extension is installed' install /tmp/current/postgresql-"$pg"-queue-jobs_*.deb || exit 1
cluster "$pg" && pg_ctlcluster "$pg" test start || exit 1
sql postgres >/dev/null <<'SQL' || exit 1
CREATE ROLE queue_jobs_web LOGIN;
CREATE DATABASE queue_jobs_web;
\c queue_jobs_web
CREATE EXTENSION queue_jobs;
GRANT queue_jobs_read, queue_jobs_operate TO queue_jobs_web;
SELECT queue_jobs.define_worker('parcel', queue => 'parcels');
SELECT queue_jobs.enqueue('parcel');
SQL
: >/tmp/web.log
# systemd would make the user (DynamicUser).
useradd --system --no-create-home queue_jobs_web
runuser -u queue_jobs_web -- env PGPORT="$(pg_conftool -s "$pg" test show port)" PGHOST=/var/run/postgresql queue_jobs_web --listen=127.0.0.1:0 >/tmp/web.log 2>&1 &
for _ in $(seq 600); do
    address=$(sed -n 's/.* listens on \(http:[^ ]*\).*/\1/p' /tmp/web.log)
    [ -z "$address" ] || break
    sleep 0.1
done
get() { perl -MHTTP::Tiny -e '$r = HTTP::Tiny->new->get($ARGV[0]); print "$r->{status}\n$r->{content}"' "$1"; }
is 'it runs as a user of its own, by peer authentication' "$(get "${address}healthz" | head -n 1)" 200 || cat /tmp/web.log
check '… and shows the queue' grep -q parcels <(get "$address")
kill %1
wait
pg_ctlcluster "$pg" test stop -m fast

# ---- an upgrade, as a system that systemd has started sees it ----

mkdir -p /run/systemd/system /usr/local/bin
printf '#!/bin/sh\nexit 0\n' >/usr/sbin/policy-rc.d
printf '#!/bin/sh\necho "$*" >>/tmp/systemctl.log\n' >/usr/local/bin/systemctl
chmod 755 /usr/local/bin/systemctl
: >/tmp/systemctl.log
PATH=/usr/local/bin:$PATH check 'the package is upgraded' dpkg -i /tmp/current/queue-jobs-web_*.deb
check '… which restarts it if it runs' grep -q 'try-restart.*queue_jobs_web.service' /tmp/systemctl.log || cat /tmp/systemctl.log
check '… and does not stop or start it otherwise' bash -c '! grep -E "(^| )(stop|start|restart|enable) .*queue_jobs_web" /tmp/systemctl.log'
rm -r /run/systemd/system /usr/local/bin/systemctl

check 'apt removes it' apt-get -qy purge queue-jobs-web
is '… and leaves no file' "$(find / -xdev \( -path /tmp -o -path /mnt -o -path /proc \) -prune -o -name '*queue[_-]jobs[_-]web*' ! -path '/var/lib/*' ! -path '/var/cache/man/*' -print)" ''
