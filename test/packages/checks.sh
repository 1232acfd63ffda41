# shellcheck shell=bash
# For the steps of test/packages, which run within a release's folder: a line for each check, as run.sh counts them.

# check NAME COMMAND…   passes if the command does; otherwise its output is shown
check() {
    local name=$1 output
    shift
    if output=$("$@" 2>&1 </dev/null); then
        echo "ok - $name"
    else
        echo "not ok - $name"
        tail -n 40 <<<"$output" | sed 's/^/#   /'
        return 1
    fi
}

# is NAME GOT EXPECTED
is() {
    if [ "$2" = "$3" ]; then
        echo "ok - $1"
    else
        printf 'not ok - %s\n#   got:      %s\n#   expected: %s\n' "$1" "$2" "$3"
        return 1
    fi
}

# skip NAME REASON
skip() { echo "skipped - $1: $2"; }

install() { apt-get -qy install "$@"; }

# Asks until the answer is as expected, for PG_TEST_TIMEOUT_DEFAULT seconds at most.
# becomes NAME EXPECTED COMMAND…
becomes() {
    local name=$1 expected=$2 got deadline=$((SECONDS + ${PG_TEST_TIMEOUT_DEFAULT:-180}))
    shift 2
    while got=$("$@" 2>&1 </dev/null); [ "$got" != "$expected" ] && [ $SECONDS -lt $deadline ]; do sleep 0.1; done
    is "$name" "$got" "$expected"
}

# A cluster as Debian makes it, with the library preloaded; but no port of the machine's is taken.
cluster() {
    pg_createcluster "$1" test >/dev/null &&
        pg_conftool "$1" test set listen_addresses '' &&
        pg_conftool "$1" test set shared_preload_libraries queue_jobs
}
# sql DATABASE ARGUMENT…   as superuser, in cluster test of version $pg
# shellcheck disable=SC2154   # pg is the script's
sql() { runuser -u postgres -- psql -XAtq -v ON_ERROR_STOP=1 -p "$(pg_conftool -s "$pg" test show port)" -d "$@"; }
