#!/usr/bin/env bash
# Within a release's folder: the released version's package on a cluster as Debian makes it, with a database in use; then this
# tree's package over it, as `apt upgrade` does, ALTER EXTENSION UPDATE, and the jobs go on. At last the packages are removed.
#
#   upgrade.sh VERSION   of PostgreSQL
set -uo pipefail
# shellcheck source=test/packages/checks.sh
. /mnt/test/packages/checks.sh
pg=$1
package=postgresql-$pg-queue-jobs
version=$(sed -n "s/^default_version = '\(.*\)'/\1/p" /mnt/queue_jobs.control)
released=$(sed -n 's/^LAST_RELEASE *= *//p' /mnt/Makefile)

jobs() { sql shop -c "SELECT string_agg(DISTINCT state, ',') FROM queue_jobs.job WHERE worker = '$1'"; }
extension() { sql shop -c "SELECT extversion FROM pg_extension WHERE extname = 'queue_jobs'"; }

# ---- the released version ----

check "$package $released is installed" install /tmp/released/"$package"_"$released"-*.deb || exit 1
cluster "$pg" && pg_ctlcluster "$pg" test start || exit 1
sql postgres -c 'CREATE ROLE app LOGIN' -c 'CREATE DATABASE shop' || exit 1
sql shop >/dev/null <<'SQL' || exit 1
CREATE EXTENSION queue_jobs;
GRANT queue_jobs_enqueue, queue_jobs_claim, queue_jobs_define, queue_jobs_operate, queue_jobs_read TO app;
CREATE SCHEMA app AUTHORIZATION app;
SET SESSION AUTHORIZATION app;
CREATE TABLE app.ran (n int, at timestamptz DEFAULT now());
CREATE FUNCTION app.work(n int) RETURNS void LANGUAGE sql AS 'INSERT INTO app.ran SELECT work.n';
SELECT queue_jobs.define_worker('work', 'app.work', keep_completed => '1 day'), queue_jobs.define_worker('paused', 'app.work', queue => 'paused', keep_completed => '1 day'),
    queue_jobs.define_worker('tomorrow', 'app.work'), queue_jobs.define_worker('claimed');
SELECT queue_jobs.pause('paused');
SELECT queue_jobs.enqueue('work', jsonb_build_object('n', n)), queue_jobs.enqueue('paused', jsonb_build_object('n', n + 1000)) FROM generate_series(1, 100) n;
SELECT queue_jobs.enqueue('tomorrow', '{"n": 5000}', delay => '1 day'), queue_jobs.enqueue('claimed', '{"n": 6000}');
SELECT queue_jobs.schedule('tick', '* * * * * *', 'work', '{"n": 9000}');
SQL
is "CREATE EXTENSION makes $released" "$(extension)" "$released"
becomes 'its jobs run' 100 sql shop -c 'SELECT count(*) FROM app.ran WHERE n <= 100'
becomes 'its schedule ticks' t sql shop -c 'SELECT count(*) > 1 FROM app.ran WHERE n = 9000'

# ---- this tree's over it ----

check "$package $version is installed over it" install /tmp/current/"$package"_"$version"-*.deb || exit 1
is 'dpkg has nothing to complain of' "$(dpkg --audit)" ''
server() { sql postgres -c "SELECT pg_postmaster_start_time()"; }
started=$(server)
sql shop -c "SET SESSION AUTHORIZATION app; SELECT queue_jobs.enqueue('work', '{\"n\": 2000}')" >/dev/null
becomes 'the server goes on with what it has loaded' 1 sql shop -c 'SELECT count(*) FROM app.ran WHERE n = 2000'
is '… and is not restarted' "$(server)" "$started"

check 'the administrator restarts the cluster' pg_ctlcluster "$pg" test restart -m fast || exit 1
refusal=$(sql shop -c "SELECT queue_jobs.enqueue('work', '{\"n\": 1}')" 2>&1)
is 'the new library refuses the old tables, and says what to do' "$(grep -o 'ALTER EXTENSION queue_jobs UPDATE' <<<"$refusal")" 'ALTER EXTENSION queue_jobs UPDATE'
check 'ALTER EXTENSION queue_jobs UPDATE' sql shop -c 'ALTER EXTENSION queue_jobs UPDATE'
is "it is $version" "$(extension)" "$version"

ticks=$(sql shop -c 'SELECT count(*) FROM app.ran WHERE n = 9000')
becomes 'the schedule goes on' t sql shop -c "SELECT count(*) > $ticks + 1 FROM app.ran WHERE n = 9000"
sql shop -c "SET SESSION AUTHORIZATION app; SELECT queue_jobs.resume('paused'), queue_jobs.run_now('tick')" >/dev/null
becomes 'what was paused runs, each once' 100,100 sql shop -F, -c 'SELECT count(*), count(DISTINCT n) FROM app.ran WHERE n BETWEEN 1001 AND 1100'
is 'what had run has not run again' "$(sql shop -c 'SELECT count(*) FROM app.ran WHERE n <= 100')" 100
is 'what waits for tomorrow waits' "$(jobs tomorrow)" scheduled
is 'what a claimant may claim is claimed' "$(sql shop -c "SET SESSION AUTHORIZATION app; SELECT args ->> 'n' FROM queue_jobs.claim('upgraded', '{claimed}')")" 6000
becomes 'health() finds nothing' '' sql shop -c "SELECT string_agg(name, ',') FROM queue_jobs.health() WHERE NOT ok"

# ---- and what is removed is gone ----

pg_ctlcluster "$pg" test stop -m fast
check 'apt removes it' apt-get -qy purge "$package"
is '… and leaves no file' "$(find / -xdev \( -path /tmp -o -path /mnt -o -path /proc -o -path /var/lib/dpkg -o -path /var/lib/postgresql -o -path /var/cache/queue_jobs \) -prune -o -name '*queue[_-]jobs*' ! -path '/etc/apt/*' -print)" ''
pg_dropcluster "$pg" test
