#!/usr/bin/env bash
# make demo: a shop whose jobs run inside its database. Within the sandbox, on a server that is thrown away.
set -euo pipefail

demo=$PWD/test/demo
data=$PWD/demo_data
limit=60    # seconds for the jobs to be done; they need a few

say() { printf '\n\033[1m%s\033[0m\n' "$1"; shift; printf '  %s\n' "$@"; }
sql() { psql -X -q -v ON_ERROR_STOP=1 -P pager=off -P null=- -h "$PWD" -U postgres -d shop "$@"; }

say 'A server of its own' \
    "PostgreSQL's default settings, but shared_preload_libraries = 'queue_jobs' and a Unix socket only." \
    'No worker process, no Redis, no cron beside it: the server runs the jobs.'
initdb -D "$data" -U postgres -A trust >initdb.log || { cat initdb.log; exit 1; }
trap 'pg_ctl -s -D "$data" -m fast stop || true' EXIT
pg_ctl -s -w -D "$data" -l server.log \
    -o "-c shared_preload_libraries=queue_jobs -c listen_addresses= -k '$PWD'" start >/dev/null || { cat server.log; exit 1; }
createdb -h "$PWD" -U postgres shop

say 'A shop: users, orders, charges, an outbox of mails; and three workers' \
    'charge_order must happen once per order, send_mail once per mail; sync_crm fails for each' \
    'tenth user, is tried again twice, 50 ms apart, and is then dead.'
sql -f "$demo/shop.sql"
sql -c 'SELECT name, handler, max_retries, queue FROM queue_jobs.worker ORDER BY name'

say '2,000 orders' \
    'Each is one transaction: the order, its mail, and the jobs for both. Executors start on the' \
    'first ones while the later ones are still coming in. One order is rolled back: so are its jobs.'
sql -c 'CALL app.place_orders(2000)' -c 'BEGIN' -o /dev/null -c 'SELECT app.place_order(1)' -c 'ROLLBACK'

say 'Waiting until nothing is left to run' "At most $limit s; asking every 0.1 s, which is this script's need, not the queue's."
deadline=$((SECONDS + limit))
until [ "$(sql -Atc "SELECT count(*) FROM queue_jobs.job WHERE state NOT IN ('completed', 'cancelled', 'dead')")" = 0 ]; do
    if [ $SECONDS -ge $deadline ]; then
        echo "Not done after $limit s:"
        sql -c 'SELECT worker, state, count(*), max(last_error) FROM queue_jobs.job GROUP BY 1, 2 ORDER BY 1, 2'
        tail -n 30 server.log
        exit 1
    fi
    sleep 0.1
done

sql -f "$demo/report.sql"
# The exit status says it, too.
[ "$(sql -Atc 'SELECT ok FROM app.verdict')" = t ]
