#!/usr/bin/env bash
# All tests with each major version of PostgreSQL that is supported: the machine's own with `make test`, each other one
# likewise within the Debian release that has it, in a folder made by debootstrap; 17 with pg_upgrade from the machine's
# own, too; 18 as it is built with assertions from Debian's source. Ends with a line for each version and the sum, `N passed, N failed`. A version that cannot be had here is
# reported as skipped, and counts as nothing; the exit status is 1 if anything failed or nothing ran.
#
#   VERSIONS    default: 15 17 18a; with an "a" behind it a version is built with assertions
#   CACHE       where the folders are kept (see releases.sh)
#   PG_CONFIG   the machine's own PostgreSQL (see packages.sh)
#   TESTS       kinds of tests; default: all that make test runs
#   TAP, JOBS, KEEP, VERBOSE, REGRESS, ISOLATION, QUEUE_JOBS_STRESS_SECONDS, QUEUE_JOBS_FUZZ_SEED   as for make test
#
# The other versions need root (see releases.sh). Their folders are only read: the tests write to a temporary directory that is
# mounted over /tmp.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. test/lib/releases.sh

results=()
failures=
passed=0
failed=0
work=

# The machine's own PostgreSQL as another version's /tmp/old, which can be upgraded from (test/t/014_pg_upgrade.pl).
pack_own() {
    mkdir "$work/old" && chmod 1777 "$work/old" &&
        PG_CONFIG=$PG_CONFIG KEEP='' test/lib/sandbox.sh test/lib/pack_installation.sh "$work/old"
}

skip() {
    echo "PostgreSQL $1 is skipped: $2"
    results+=("$1: skipped, not tested: $2")
}

# Adds up what the command's output ends with; without a count nothing was tested, which is a failure.
count() {
    local version=$1 log=$2 status=$3 line
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
    if [ -z "$line" ] || { [ "$status" -ne 0 ] && [ "${line##*, }" = '0 failed' ]; }; then line='0 passed, 1 failed'; fi
    results+=("$version: $line")
    passed=$((passed + ${line%% *}))
    line=${line##*, }
    failed=$((failed + ${line%% *}))
}

cleanup() {
    [ -z "$work" ] || [ -n "${KEEP:-}" ] || rm -rf "$work"
    work=
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

PG_CONFIG=$(test/lib/packages.sh) || exit 1
own=$("$PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
arguments=()
# What is tested in the folders of other versions: neither clients, dashboard nor monitoring, whose packages are not there.
kinds=
all=${TESTS:-regress isolation tap web clients monitoring}
for kind in $all; do
    case $kind in web | clients | monitoring) ;; *) kinds+="$kind " ;; esac
done
for name in TAP JOBS KEEP VERBOSE REGRESS ISOLATION PG_TEST_TIMEOUT_DEFAULT QUEUE_JOBS_STRESS_SECONDS QUEUE_JOBS_FUZZ_SEED; do
    [ -z "${!name:-}" ] || arguments+=("$name=${!name}")
done

for version in ${VERSIONS:-15 17 18a}; do
    echo "=== PostgreSQL $version"
    cleanup
    work=$(mktemp -d -t queue_jobs_matrix.XXXXXX) || exit 1
    chmod 1777 "$work"
    # What a make around us was told is for the machine's own PostgreSQL.
    if [ "$version" = "$own" ]; then
        run=(make test PG_CONFIG="$PG_CONFIG" TESTS="$all")
    elif ! release "$version" >/dev/null; then
        skip "$version" "$0 knows no Debian release that has it"
        continue
    elif [ -z "$kinds" ]; then
        skip "$version" "clients, dashboard and monitoring are tested with the machine's own PostgreSQL"
        continue
    elif [ "$(id -u)" -ne 0 ]; then
        skip "$version" 'not root, as debootstrap and chroot need'
        continue
    elif ! contained true; then
        skip "$version" 'no right to make namespaces and mounts'
        continue
    elif ! bootstrap "$version"; then
        skip "$version" "Debian $(release "$version") could not be installed into $cache/$version"
        continue
    else
        run=(within "$version" make -C /mnt test PG_CONFIG="$(release_pg_config "$version")" TESTS="$kinds")
    fi

    log=$work/log
    # Not to 18: forky has no minor release of the age of bookworm's security updates, and refuses what they have added to the catalog.
    if [ "${run[0]}" = within ] && [ "$version" = 17 ] && [ "$own" -lt 17 ]; then
        if pack_own </dev/null >/dev/null; then
            run+=(OLD_INSTALLATION=/tmp/old)
        else
            results+=("$version: no pg_upgrade from $own, which could not be packed")
            failed=$((failed + 1))
        fi
    fi
    # A make around us would hand down its PG_CONFIG and job slots.
    (unset MAKEFLAGS MAKELEVEL && "${run[@]}" "${arguments[@]}") </dev/null 2>&1 | tee "$log"
    count "$version" "$log" "${PIPESTATUS[0]}"
    failures+=$(sed -n "s/^=== what failed$/& with PostgreSQL $version/; /^=== what failed/,/^(make test KEEP/p" "$log")$'\n'
    [ -z "${KEEP:-}" ] || echo "Keeping $work, which is PostgreSQL $version's /tmp"
done

echo
[ "$failed" -eq 0 ] || grep . <<<"$failures"
printf 'PostgreSQL %s\n' "${results[@]}"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
