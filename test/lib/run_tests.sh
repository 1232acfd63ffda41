#!/usr/bin/env bash
# All tests, within the sandbox: regression, isolation, TAP, and those of dashboard, clients and monitoring. The last
# line is `N passed, N failed` (a TAP file counts with each of its tests), the exit status 1 if anything failed or
# nothing ran.
#
#   REGRESS, ISOLATION   names of the tests, from the Makefile
#   TESTS                the kinds to run; default: regress isolation tap; the Makefile adds web, clients and monitoring
#   TAP                  the TAP files to run, as test/t/process_basic.pl; default: all of the kind
#   JOBS                 TAP files at a time; default: four times the processors, for they wait more than they work
#   VERBOSE=1            each of their tests, and what they note
set -uo pipefail

passed=0
failed=0

count() {
    passed=$((passed + $1))
    failed=$((failed + $2))
}

# Prints the ends of the files given, those that exist.
tails() {
    local file
    for file in "$@"; do
        [ ! -s "$file" ] || { echo "--- end of $file"; tail -n 40 "$file"; }
    done
}

# run_driver DRIVER OUTPUTDIR OPTIONS… -- TESTS…: pg_regress or its isolation twin, with a server of its own.
run_driver() {
    local driver=$1 out=$2 options=() ok status
    shift 2
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    [ $# -gt 0 ] || return 0

    echo "=== $(basename "$driver"): $*"
    mkdir -p "$out"
    # --bindir= means: programs from the PATH
    "$driver" --bindir= --outputdir="$out" --temp-instance="$out/server" --temp-config=test/queue_jobs.conf \
        "${options[@]}" "$@" 2>&1 | tee "$out/summary"
    status=$?

    # "test NAME ... ok" up to PostgreSQL 15, "ok 1 - NAME" since. What was not reported ok has failed, also when the
    # server never came up.
    ok=$(grep -cE '^(test )? *[^ ]+ +\.\.\. ok|^ok [0-9]+ ' "$out/summary")
    if [ "$ok" -eq $# ] && [ "$status" -ne 0 ]; then ok=$((ok - 1)); fi
    count "$ok" $(($# - ok))
    if [ "$status" -ne 0 ]; then
        if [ -s "$out/regression.diffs" ]; then
            echo "--- $out/regression.diffs"
            cat "$out/regression.diffs"
        else
            tails "$out/log/initdb.log"
        fi
        tails "$out/log/postmaster.log"
    fi
}

# PostgreSQL 16 and later copy it for each server of a TAP file, which takes a tenth of the time of initdb.
make_template() {
    export INITDB_TEMPLATE=$PWD/tmp_template
    [ -d "$INITDB_TEMPLATE" ] || ! grep -q INITDB_TEMPLATE "$PGXS_DIR/test/perl/PostgreSQL/Test/Cluster.pm" ||
        initdb -D "$INITDB_TEMPLATE" -A trust -N >/dev/null
}

# The files that take longest, minutes where others take seconds: they begin first, so that none of them is at work alone at the end.
longest='docs_examples build_installcheck fault_points fault_poison dedup_reschedule_once replica_reads'

longest_first() {
    local file name
    for name in $longest; do
        for file in "$@"; do [[ $file != *"/$name.pl" ]] || echo "$file"; done
    done
    for file in "$@"; do
        name=${file##*/}
        [[ " $longest " = *" ${name%.pl} "* ]] || echo "$file"
    done
}

# The names of the files that failed, from what prove says at its end.
failed_files() {
    sed -n 's|^.*/\([^ ]*\)\.pl *(Wstat: .*|\1|p' "$@" 2>/dev/null
}

# run_tap KIND FILES…: the files, or those that TAP names.
run_tap() {
    local summary=tmp_check/summary_$1 files=() file status tests bad
    shift
    for file in ${TAP:-"$@"}; do
        [ -e "$file" ] || [ ! -e "test/$file" ] || file=test/$file
        [ ! -e "$file" ] && [ -z "${TAP:-}" ] || files+=("$file")
    done
    [ ${#files[@]} -gt 0 ] || return 0
    mapfile -t files < <(longest_first "${files[@]}")

    make_template || { count 0 ${#files[@]}; return; }
    echo "=== prove: ${files[*]}"
    mkdir -p tmp_check
    # Results and logs in tmp_check: PostgreSQL 15 wants to hear TESTDIR, later ones the other two.
    TESTDIR=$PWD TESTDATADIR=$PWD/tmp_check TESTLOGDIR=$PWD/tmp_check/log PG_TEST_PORT_DIR=$PWD/tmp_check/ports \
        PG_REGRESS=$PGXS_DIR/test/regress/pg_regress \
        prove --jobs "${JOBS:-$((4 * $(nproc)))}" --timer ${VERBOSE:+--verbose} -I "$PGXS_DIR/test/perl" -I test/lib "${files[@]}" 2>&1 | tee "$summary"
    status=$?

    # The summary has a line for each file that failed: "FILE (Wstat: 256 Tests: 3 Failed: 1)". Failed: 0 is one that
    # died or ended early: one failure more.
    tests=$(sed -n 's/^Files=[0-9]*, Tests=\([0-9]*\),.*/\1/p' "$summary")
    bad=$(sed -n 's/.*(Wstat: .* Failed: \([0-9]*\))$/\1/p' "$summary")
    if [ -z "$tests" ]; then
        count 0 ${#files[@]}
    else
        # shellcheck disable=SC2086   # a number each
        set -- $bad
        local not_ok=0 broken=0 n
        for n in "$@"; do
            not_ok=$((not_ok + n))
            [ "$n" -gt 0 ] || broken=$((broken + 1))
        done
        if [ $# -eq 0 ] && [ "$status" -ne 0 ]; then broken=1; fi
        count $((tests - not_ok)) $((not_ok + broken))
    fi
    failed_files "$summary" | while read -r file; do
        tails tmp_check/log/regress_log_"$file" tmp_check/log/"$file"_*.log
    done
}

# Each client's own preparations, then the suite that all share, and the tests of each.
run_clients() {
    local prepare
    for prepare in clients/*/test/prepare; do
        [ ! -x "$prepare" ] || (cd "${prepare%/test/prepare}" && test/prepare) || { echo "$prepare failed"; count 0 1; }
    done
    run_tap clients test/clients/*.pl clients/*/test/*.pl
}

# The dashboard's tests end with `N passed, N failed`, too.
run_web() {
    local line
    echo '=== web'
    mkdir -p tmp_web
    python3 -B web/test/run.py 2>&1 | tee tmp_web/summary
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' tmp_web/summary | tail -n 1)
    line=${line:-0 passed, 1 failed}
    count "${line%% *}" "$(sed 's/.*, \([0-9]*\) .*/\1/' <<<"$line")"
}

# What the TAP files that died said after the last of their tests.
last_words() {
    failed_files tmp_check/summary_* | while read -r file; do
        awk -v file="$file" '/^\[[^]]*\] *(not )?ok |^server started/ { said = ""; next } /^(#|\[|waiting for server |server stopped)/ { next }
            { said = said $0 "\n" } END { if (said != "") printf "--- %s\n%s", file, said }' tmp_check/log/regress_log_"$file" 2>/dev/null | cut -c 1-300 | head -n 30
    done
}

# The names come as one word from the Makefile, and are split here.
# shellcheck disable=SC2086
run_kind() {
    case $1 in
        regress) run_driver "$PGXS_DIR/test/regress/pg_regress" tmp_regress \
            --dbname=contrib_regression -- $REGRESS ;;
        isolation) run_driver "$PGXS_DIR/test/isolation/pg_isolation_regress" tmp_isolation \
            --inputdir=test/isolation --dbname=isolation_regression -- $ISOLATION ;;
        tap) run_tap tap test/t/*.pl ;;
        clients) run_clients ;;
        web) run_web ;;
        monitoring) run_tap monitoring monitoring/test/*.pl ;;
    esac
}

kinds=" ${TESTS:-regress isolation tap} "
for kind in $kinds; do
    case $kind in
        regress | isolation | tap | web | clients | monitoring) ;;
        *) echo "TESTS: no such kind: $kind (regress, isolation, tap, web, clients, monitoring)" >&2; exit 2 ;;
    esac
done
# The isolation tests run one at a time, and wait for most of it: they run beside the TAP files. The regression tests
# run by themselves, for some look at what share of a processor a job gets.
for kind in $kinds; do
    if [ "$kind" = tap ] && [[ $kinds = *' isolation '* ]]; then
        (passed=0 failed=0; run_kind isolation; echo "$passed $failed" >tmp_beside_count) >tmp_beside_log 2>&1 &
        run_kind tap
        wait
        cat tmp_beside_log
        # shellcheck disable=SC2046   # two numbers
        count $(cat tmp_beside_count)
    elif [ "$kind" != isolation ] || [[ $kinds != *' tap '* ]]; then
        run_kind "$kind"
    fi
done

# Once more at the end, for who sees no more of the output than that: the names, and what the tests say of it.
if [ "$failed" -ne 0 ]; then
    echo '=== what failed'
    cat tmp_regress/summary tmp_isolation/summary 2>/dev/null | grep -E '^(test )? *[^ ]+ +\.\.\. FAILED|^not ok '
    [ ! -s tmp_web/summary ] || grep -E '^(FAIL|ERROR):|^[A-Za-z.]*Error: ' tmp_web/summary | cut -c 1-300
    # What another language's runner says of its failed tests, which its lines on the others would drown.
    cat tmp_check/summary_* 2>/dev/null | grep -aE -A 25 '^# *not ok ' | cut -c 1-300 | head -n 100
    cat tmp_check/summary_* 2>/dev/null | grep -aE '^ *#|\(Wstat: ' | grep -avE '^# skipped |# Subtest: ' | cut -c 1-300 | tail -n 30
    last_words
    echo "(make test KEEP=1 keeps the results and logs)"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
