#!/usr/bin/env bash
# All tests with each major version of PostgreSQL that is supported: the machine's own with `make test`, each other one
# likewise within the Debian release that has it, in a folder made by debootstrap; 17 and 19 with pg_upgrade from the machine's
# own, too; 18 as it is built with assertions from Debian's source. What no version of PostgreSQL changes runs with the
# machine's own alone: clients, dashboard, monitoring, and the TAP files whose first lines say "The matrix runs it once."
# The folders are made while the machine's own PostgreSQL is tested.
#
# Ends with a line for each version and the sum, `N passed, N failed`. A version whose folder cannot be made has failed. Without root or
# namespaces, which folders need, a version is reported as skipped, and counts as nothing. The exit status is 1 if anything failed or nothing ran.
#
#   VERSIONS    default: 15 17 18a 19; with an "a" behind it a version is built with assertions
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

# At a time; each has half of the TAP files at a time that a version alone would have.
lanes=2
top=

# The machine's own PostgreSQL as another version's /tmp/old, which can be upgraded from (test/t/life_pg_upgrade.pl).
pack_own() {
    mkdir "$work/old" && chmod 1777 "$work/old" &&
        PG_CONFIG=$PG_CONFIG KEEP='' test/lib/sandbox.sh test/lib/pack_installation.sh "$work/old"
}

# report VERSION PASSED FAILED TEXT: what the last lines say of the version, and how much it adds to the sum. May be called more than once.
report() {
    echo "$1: $4" >>"$top/results.$1"
    echo "$2 $3" >>"$top/counts"
}

skip() {
    echo "PostgreSQL $1 is skipped: $2"
    report "$1" 0 0 "skipped, not tested: $2"
}

# Adds up what the command's output ends with; without a count nothing was tested, which is a failure.
count() {
    local version=$1 log=$2 status=$3 line bad
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
    if [ -z "$line" ] || { [ "$status" -ne 0 ] && [ "${line##*, }" = '0 failed' ]; }; then line='0 passed, 1 failed'; fi
    bad=${line##*, }
    report "$version" "${line%% *}" "${bad%% *}" "$line, in $((SECONDS / 60)) minutes"
}

# shellcheck disable=SC2317   # called by trap
cleanup() {
    local lane
    for lane in $(jobs -p); do kill -- "-$lane" 2>/dev/null; done
    wait
    [ -z "$top" ] || [ -n "${KEEP:-}" ] || rm -rf "$top"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Tests a version, in a process of its own.
test_version() {
    local version=$1 work=$top/$1 log=$top/log.$1 run
    SECONDS=0
    echo "=== PostgreSQL $version"
    mkdir "$work" && chmod 1777 "$work" || return
    if [ "$version" = "$own" ]; then
        run=(make test PG_CONFIG="$PG_CONFIG" TESTS="$all" ${TAP:+"TAP=$TAP"})
    elif ! release "$version" >/dev/null; then
        skip "$version" "$0 knows no Debian release that has it"
        return
    elif [ -z "$kinds" ]; then
        skip "$version" "clients, dashboard and monitoring are tested with the machine's own PostgreSQL"
        return
    elif [ "$(id -u)" -ne 0 ]; then
        skip "$version" 'not root, as debootstrap and chroot need'
        return
    elif ! contained true; then
        skip "$version" 'no right to make namespaces and mounts'
        return
    elif ! bootstrap "$version"; then
        report "$version" 0 1 "0 passed, 1 failed: Debian $(release "$version") with it could not be installed into $cache/$version (see $cache/$version.log)"
        return
    else
        run=(within "$version" make -C /mnt test PG_CONFIG="$(release_pg_config "$version")" TESTS="$kinds" ${elsewhere:+"TAP=$elsewhere"})
    fi

    # Not to 18: forky has no minor release of the age of bookworm's security updates, and refuses what they have added to the catalog.
    if [ "${run[0]}" = within ] && [[ $version =~ ^(17|19)$ ]] && [ "$own" -lt "$version" ]; then
        if pack_own >/dev/null; then
            run+=(OLD_INSTALLATION=/tmp/old)
        else
            report "$version" 0 1 "no pg_upgrade from $own, which could not be packed"
        fi
    fi
    # A make around us would hand down its PG_CONFIG and job slots. What it was told is for the machine's own PostgreSQL.
    (unset MAKEFLAGS MAKELEVEL && "${run[@]}" "${arguments[@]}") 2>&1 | tee "$log"
    count "$version" "$log" "${PIPESTATUS[0]}"
    [ -z "${KEEP:-}" ] || echo "Keeping $work, which is PostgreSQL $version's /tmp"
}

# Lines of several versions come mixed: each begins with its own.
label() {
    if [ ${#versions[@]} -gt 1 ]; then sed -u "s/^/$1: /"; else cat; fi
}

# (Only root can make folders.)
PG_CONFIG=$(NEEDED=$([ "$(id -u)" -ne 0 ] || echo "$folders_need") test/lib/packages.sh) || PG_CONFIG=$(test/lib/packages.sh) || exit 1
own=$("$PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
read -ra versions <<<"${VERSIONS:-15 17 18a 19}"
# What is tested in the folders of other versions: neither clients, dashboard nor monitoring, whose packages are not there.
kinds=
all=${TESTS:-regress isolation tap web clients monitoring}
for kind in $all; do
    case $kind in web | clients | monitoring) ;; *) kinds+="$kind " ;; esac
done
# The TAP files there: all, unless the machine's own PostgreSQL is tested, too.
elsewhere=${TAP:-}
if [ -z "$elsewhere" ] && [[ " ${versions[*]} " = *" $own "* ]]; then
    elsewhere=$(grep -L 'The matrix runs it once\.' test/t/*.pl | tr '\n' ' ')
fi
arguments=()
[ ${#versions[@]} -lt $lanes ] || JOBS=${JOBS:-$((4 * $(nproc) / lanes))}
for name in JOBS KEEP VERBOSE REGRESS ISOLATION PG_TEST_TIMEOUT_DEFAULT QUEUE_JOBS_STRESS_SECONDS QUEUE_JOBS_FUZZ_SEED; do
    [ -z "${!name:-}" ] || arguments+=("$name=${!name}")
done

top=$(mktemp -d -t queue_jobs_matrix.XXXXXX) || exit 1
chmod 755 "$top"
: >"$top/counts"
# Each version's processes are a group, which cleanup() can end.
set -m
for version in "${versions[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge $lanes ]; do wait -n; done
    test_version "$version" </dev/null 2>&1 | label "$version" &
done
wait

echo
passed=$(awk '{ sum += $1 } END { print sum + 0 }' "$top/counts")
failed=$(awk '{ sum += $2 } END { print sum + 0 }' "$top/counts")
if [ "$failed" -gt 0 ]; then
    for version in "${versions[@]}"; do
        [ ! -e "$top/log.$version" ] || sed -n "s/^=== what failed$/& with PostgreSQL $version/; /^=== what failed/,/^(make test KEEP/p" "$top/log.$version"
    done
fi
for version in "${versions[@]}"; do sed 's/^/PostgreSQL /' "$top/results.$version" || failed=$((failed + 1)); done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
