#!/usr/bin/env bash
# make demo: a shop whose jobs run inside its database. Within the sandbox, on a server that is thrown away.
# make play: the same shop, and psql open in it; the server is thrown away when psql is left.
#
#   demo.sh [play]
set -euo pipefail

demo=$(cd "$(dirname "$0")" && pwd)
play=${1:-}
data=$PWD/demo_data
limit=60    # seconds for the jobs to be done; they need a few

bold='' plain=''
[ ! -t 1 ] || bold=$'\033[1m' plain=$'\033[0m'
say() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; shift; printf '  %s\n' "$@"; }
sql() { psql -X -q -v ON_ERROR_STOP=1 -P pager=off -P null=- -h "$PWD" -U postgres -d shop "$@"; }

# Returns when no job is left that waits or runs.
wait_for_jobs() {
    local deadline=$((SECONDS + limit))
    until [ "$(sql -Atc "SELECT count(*) FROM queue_jobs.job WHERE state NOT IN ('completed', 'cancelled', 'dead')")" = 0 ]; do
        if [ $SECONDS -ge $deadline ]; then
            echo "Not done after $limit s:"
            sql -c 'SELECT worker, state, count(*), max(last_error) FROM queue_jobs.job GROUP BY 1, 2 ORDER BY 1, 2'
            tail -n 30 server.log
            exit 1
        fi
        sleep 0.1
    done
}

# psql gets a process group of its own: Ctrl-C is for it alone, and ends neither make nor the server.
open_psql() {
    [ ! -t 0 ] || set -m
    psql -X -P pager=off -h "$PWD" -U postgres -d shop || true
    set +m
}

echo 'Starting a server, with a Unix socket only'
initdb -D "$data" -U postgres -A trust >initdb.log || { cat initdb.log; exit 1; }
trap 'pg_ctl -s -D "$data" -m fast stop || true' EXIT
pg_ctl -s -w -D "$data" -l server.log \
    -o "-c shared_preload_libraries=queue_jobs -c listen_addresses= -k '$PWD'" start >/dev/null || { cat server.log; exit 1; }
createdb -h "$PWD" -U postgres shop

say 'A server of its own' \
    "PostgreSQL's default settings, but for shared_preload_libraries = 'queue_jobs'." \
    'No worker process, no Redis, no cron beside it: the server runs the jobs.'

say 'A shop: users, orders, charges, an outbox of mails; and three workers' \
    'charge_order must happen once per order, send_mail once per mail; sync_crm fails for each' \
    'tenth user, is tried again twice, 50 ms apart, and is then dead.'
sql -f "$demo/shop.sql"
sql -c 'SELECT name, handler, max_retries, queue FROM queue_jobs.worker ORDER BY name'

say '2,000 orders' \
    'Each is one transaction: the order, its mail, and the jobs for both. Executors start on the' \
    'first ones while the later ones are still coming in. One order is rolled back: so are its jobs.'
sql -c 'CALL app.place_orders(2000)' -c 'BEGIN' -o /dev/null -c 'SELECT app.place_order(1)' -c 'ROLLBACK'

if [ "$play" = play ]; then
    say 'It is yours: three lines to paste' 'A function, a worker whose handler it is, its first job; and what came of it:'
    printf '\n%s\n%s\n%s\n' \
        "CREATE FUNCTION app.hello(name text) RETURNS text LANGUAGE sql AS \$\$ SELECT 'Hello, ' || name \$\$;" \
        "SELECT queue_jobs.define_worker('hello', 'app.hello'); SELECT queue_jobs.enqueue('hello', '{\"name\": \"world\"}');" \
        'SELECT id, worker, state, attempt, finished_at - created_at AS took, result FROM queue_jobs.job ORDER BY id DESC LIMIT 5;'
    say 'And then' \
        '\d+ queue_jobs.job explains the columns, \df queue_jobs.* lists the functions; README.md goes on' \
        'with "Concepts". \q leaves psql, and all of this is removed.'
    echo
    open_psql
    exit
fi

say 'Waiting until nothing is left to run' "At most $limit s; asking every 0.1 s, which is this script's need, not the queue's."
wait_for_jobs
sql -f "$demo/report.sql"

say 'A batch with a callback' \
    'Each order is checked by a job of its own. When the last one is committed, another adds up what they returned.'
sql -f "$demo/batch.sql"

say 'What next' \
    'make play                  this shop once more, with psql open in it' \
    'make test TESTS=regress    a minute of tests; without TESTS= all of them' \
    'README.md                  "Install", and then "Your first job in a minute"; docs/how-to/sidekiq.md and' \
    '                           docs/how-to/other-queues.md, if you come from another queue'

# The exit status says it, too.
[ "$(sql -Atc 'SELECT ok FROM app.verdict')" = t ]
