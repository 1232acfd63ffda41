#!/usr/bin/env bash
# `make packages`: what people install is built as they get it, installed, used and upgraded, with each version of PostgreSQL in the Debian release that has
# it. Only throwaway copies of the releases' folders are written to (test/lib/releases.sh). Ends with `N passed, N failed`; a version that cannot be had here
# is reported as skipped; the exit status is 1 if anything failed or nothing ran.
#
#   VERSIONS   default: 15 17 18
#   STEPS      default: all of
#                upgrade      Debian's packages of 0.1.0, a database in use, then those of this tree over them
#                autopkgtest  debian/tests
#                dashboard    queue-jobs-web: files, unit, man page, a page, an upgrade
#                pgxn         META.json, the archive, `pgxn install`
#                container    images made from packaging/: the server's, and with 18 the one that CloudNativePG mounts
#              Before them, Debian's packages are built.
#   CACHE      where the folders are kept (releases.sh)
#   KEEP=1     leaves what it has made
#   PG_TEST_TIMEOUT_DEFAULT   how long a check waits at most, in seconds; default: 180
#
# It needs root, a network to Debian's packages, and the repository's history: 0.1.0 is built from it.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. test/lib/releases.sh

steps=${STEPS:-upgrade autopkgtest dashboard pgxn container}
results=()
passed=0
failed=0
top=
work=

fail() { echo "make packages: $1" >&2; exit 1; }

# shellcheck disable=SC2317   # called by trap
cleanup() {
    [ -z "$top" ] || [ -n "${KEEP:-}" ] || rm -rf --one-file-system "$top"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Archives of this tree as it is, by `make dist`, in $top/archives; and of the last released version, from the history.
archives() {
    local changed
    # It goes into a repository of its own: there may be changes which are not committed.
    mkdir -p "$top/repository" "$top/archives" || return
    git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - | tar -x -C "$top/repository" || return
    (
        cd "$top/repository" && git init -q && git add -A &&
            git -c user.name=test -c user.email=test@localhost commit -q -m 'as it is here' && unset MAKEFLAGS MAKELEVEL && make -s dist &&
            mv ./*.zip ./*.orig.tar.gz "$top/archives"
    ) || return
    # The last commit whose control file said it. (The copy in test/data has no debian/.)
    changed=$(git log -1 --format=%H -S"default_version = '$released'" -- queue_jobs.control) && [ -n "$changed" ] &&
        git archive --prefix="queue_jobs-$released/" --format=tar.gz -o "$top/archives/queue-jobs_$released.orig.tar.gz" "$changed^"
}

# step NAME FOLDER COMMAND…   within a copy of the version's folder; adds its checks to the sum
step() {
    local name=$1 folder=$2 log=$top/$version.$1.log status good bad
    shift 2
    echo "--- PostgreSQL $version: $name"
    within_folder "$cache/$version" "$top/$version.$folder" APT_CONFIG=/tmp/apt.conf DEBIAN_FRONTEND=noninteractive \
        PG_TEST_TIMEOUT_DEFAULT="${PG_TEST_TIMEOUT_DEFAULT:-180}" "$@" </dev/null 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    good=$(grep -c '^ok - ' "$log")
    bad=$(grep -c '^not ok - ' "$log")
    if [ "$bad" -eq 0 ] && { [ "$status" -ne 0 ] || [ "$good" -eq 0 ]; }; then
        echo "not ok - $name ended with status $status" | tee -a "$log"
        bad=1
    fi
    passed=$((passed + good))
    failed=$((failed + bad))
    results+=("PostgreSQL $version, $name: $good passed, $bad failed")
    while read -r line; do results+=("    $line"); done < <(grep -E '^(not ok|skipped) - ' "$log")
    [ "$bad" -eq 0 ]
}

skip() {
    echo "PostgreSQL $1 is skipped: $2"
    results+=("PostgreSQL $1: skipped, not tested: $2")
}

[ "$(id -u)" -eq 0 ] || fail 'debootstrap and chroot need root'
contained true || fail 'no right to make namespaces and mounts'
top=$(mktemp -d -t queue_jobs_packages.XXXXXX) || exit 1
chmod 755 "$top"
[ -z "${KEEP:-}" ] || echo "Keeping $top"
released=$(sed -n 's/^LAST_RELEASE *= *//p' Makefile)
archives || fail "no archives: it takes a git repository with the history back to $released"

for version in ${VERSIONS:-15 17 18}; do
    echo "=== PostgreSQL $version"
    work=$top/$version.tmp
    mkdir -p "$work/archives/partial" "$work/current" "$work/released" "$work/dist"
    chmod 1777 "$work"
    if ! release "$version" >/dev/null; then
        skip "$version" 'test/lib/releases.sh knows no Debian release that has it'
        continue
    elif ! bootstrap "$version"; then
        skip "$version" "Debian $(release "$version") could not be installed into $cache/$version"
        continue
    fi
    # What one step has downloaded the next ones take from there.
    printf '%s\n' 'Dir::Cache::archives "/tmp/archives/";' 'APT::Install-Recommends "false";' 'APT::Sandbox::User "root";' >"$work/apt.conf"
    cp "$top"/archives/* "$work/dist"
    for which in current released; do
        number=$released
        [ $which = released ] || number=$(sed -n "s/^default_version = '\(.*\)'/\1/p" queue_jobs.control)
        cp "$top/archives/queue-jobs_$number.orig.tar.gz" "$work/$which"
        tar -xzf "$work/$which/queue-jobs_$number.orig.tar.gz" -C "$work/$which" || exit 1
    done

    step build build /mnt/test/packages/build.sh "$version" || continue
    for name in $steps; do
        case $name in
            # It needs what builds packages, the others prove that they don't.
            autopkgtest) step "$name" build /mnt/test/packages/autopkgtest.sh "$version" ;;
            upgrade | dashboard | pgxn | container) step "$name" "$name" /mnt/test/packages/"$name".sh "$version" ;;
            *) fail "no step $name" ;;
        esac
    done
    [ -n "${KEEP:-}" ] || rm -rf --one-file-system "$top/$version".*[^g]
done

echo
printf '%s\n' "${results[@]}"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
