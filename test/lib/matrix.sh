#!/usr/bin/env bash
# All tests with each major version of PostgreSQL that is supported: the machine's own with `make test`, each other one
# likewise within the Debian release that has it, in a folder made by debootstrap; 17 with pg_upgrade from the machine's
# own, too. Ends with a line for each version and the sum, `N passed, N failed`. A version that cannot be had here is
# reported as skipped, and counts as nothing; the exit status is 1 if anything failed or nothing ran.
#
#   VERSIONS    default: 15 17 18
#   CACHE       where the folders are kept, some 1.5 GB each; default: $XDG_CACHE_HOME/queue_jobs, else
#               /var/cache/queue_jobs. Remove one to have it made again, with the release's latest packages.
#   PG_CONFIG   the machine's own PostgreSQL (see packages.sh)
#   TESTS       kinds of tests; default: regress isolation tap (make test runs web, clients and monitoring, too)
#   TAP, JOBS, KEEP, REGRESS, ISOLATION   as for make test
#
# The other versions need root: debootstrap does, and so do a chroot and its mounts. These are made in namespaces of their
# own and are gone, as is every process in there, once the test has ended, however that came about; the folder itself is only
# read, the tests write to a temporary directory that is mounted over its /tmp.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

cache=${CACHE:-${XDG_CACHE_HOME:-/var/cache}/queue_jobs}
results=()
failures=
passed=0
failed=0
work=

# The Debian release that has the version.
release() {
    case $1 in
        15) echo bookworm ;;
        17) echo trixie ;;
        18) echo forky ;;
        *) return 1 ;;
    esac
}

# What the tests need, as packages; -pgbouncer, -psycopg2 and -psycopg for the tests that are skipped without them.
packages() {
    echo "postgresql-$1,postgresql-server-dev-$1,libpq-dev,libssl-dev,gcc,libc6-dev,make,perl,libipc-run-perl,pgbouncer,python3-psycopg2,python3-psycopg"
}

# Runs a command with mounts, processes and System V shared memory of its own, which end with it.
contained() { unshare --mount --pid --ipc --fork --kill-child "$@"; }

# Runs a command within the version's folder; $work is its /tmp, this tree its /mnt. Bash is not replaced by it, for the first
# process of a PID namespace has to wait for orphans.
# shellcheck disable=SC2016   # expanded by the inner shell
within() {
    contained bash -ec '
        dir=$1 work=$2
        shift 2
        mount --bind "$PWD" "$dir/mnt"
        mount -o remount,bind,ro "$dir/mnt"
        mount --bind "$work" "$dir/tmp"
        mount --bind /dev "$dir/dev"
        mount -t tmpfs -o mode=1777 tmpfs "$dir/dev/shm"
        mount -t proc proc "$dir/proc"
        chroot "$dir" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
        exit' contained "$cache/$1" "$work" "${@:2}"
}

# Installs the version's release, with its security updates: pg_upgrade to a minor release that is older than the machine's own
# may fail. Older debootstraps don't know the newer releases' names, but all are made by the same script.
install_release() {
    local version=$1 dir=$cache/$1
    contained timeout 900 /usr/sbin/debootstrap --variant=minbase --include="$(packages "$version")" \
        "$(release "$version")" "$dir" http://deb.debian.org/debian /usr/share/debootstrap/scripts/sid || return
    printf '#!/bin/sh\nexit 101\n' >"$dir/usr/sbin/policy-rc.d"
    chmod 755 "$dir/usr/sbin/policy-rc.d"
    # A mirror may be some weeks behind; what it has is signed all the same.
    echo 'Acquire::Check-Valid-Until "false";' >"$dir/etc/apt/apt.conf.d/90queue_jobs"
    echo "deb http://deb.debian.org/debian-security $(release "$version")-security main" >>"$dir/etc/apt/sources.list"
    within "$version" timeout 300 sh -c 'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -qy upgrade && apt-get clean'
}

# Makes the folder of the version, unless it is there. It is whole once the list of its packages is beside it.
bootstrap() {
    local version=$1 dir=$cache/$1
    mkdir -p "$cache" || return
    exec 9>"$cache/lock"
    flock 9 || return
    if [ "$(cat "$dir.packages" 2>/dev/null)" != "$(packages "$version")" ]; then
        NEEDED='/usr/sbin/debootstrap:debootstrap' test/lib/packages.sh >/dev/null || return
        echo "Making $dir"
        rm -rf --one-file-system "$dir.packages" "$dir"
        install_release "$version" </dev/null >"$cache/$version.log" 2>&1 9>&- || { tail -n 5 "$cache/$version.log"; return 1; }
        packages "$version" >"$dir.packages"
    fi
    exec 9>&-
}

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
for kind in ${TESTS:-regress isolation tap}; do
    case $kind in web | clients | monitoring) ;; *) kinds+="$kind " ;; esac
done
for name in TAP JOBS KEEP REGRESS ISOLATION PG_TEST_TIMEOUT_DEFAULT; do
    [ -z "${!name:-}" ] || arguments+=("$name=${!name}")
done

for version in ${VERSIONS:-15 17 18}; do
    echo "=== PostgreSQL $version"
    cleanup
    work=$(mktemp -d -t queue_jobs_matrix.XXXXXX) || exit 1
    chmod 1777 "$work"
    # What a make around us was told is for the machine's own PostgreSQL.
    if [ "$version" = "$own" ]; then
        run=(make test PG_CONFIG="$PG_CONFIG" TESTS="${TESTS:-regress isolation tap}")
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
        run=(within "$version" make -C /mnt test PG_CONFIG="/usr/lib/postgresql/$version/bin/pg_config" TESTS="$kinds")
    fi

    log=$work/log
    # Not to 18: forky has no minor release of the age of bookworm's security updates, and refuses what they have added to the catalog.
    if [ "${run[0]}" = within ] && [ "$own" -lt "$version" ] && [ "$version" -eq 17 ]; then
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
