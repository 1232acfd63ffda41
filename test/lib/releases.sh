# shellcheck shell=bash
# For matrix.sh and test/packages: the Debian releases that have the versions of PostgreSQL, each in a folder made by
# debootstrap, and commands within one. To be sourced, from the tree's top folder.
#
#   CACHE   where the folders are kept, some 1.5 GB each; default: $XDG_CACHE_HOME/queue_jobs, else /var/cache/queue_jobs.
#           Remove one to have it made again, with the release's latest packages.
#   work    to be set: a temporary directory, which is /tmp in there
#
# A version with an "a" behind it is the release's PostgreSQL as its source package has it, built with assertions; the release's own server
# is not there then. What the tests do not need is left out of it.
#
# It needs root: debootstrap does, and so do a chroot and its mounts. These are made in namespaces of their own and are
# gone, as is every process in there, once the command has ended, however that came about. The folder itself is only read.

. test/lib/postgresql_source.sh

cache=${CACHE:-${XDG_CACHE_HOME:-/var/cache}/queue_jobs}
# What making a folder needs (test/lib/packages.sh).
folders_need='/usr/sbin/debootstrap:debootstrap bzip2:bzip2'

# The Debian release that has the version.
release() {
    case $1 in
        15 | 15a) echo bookworm ;;
        17) echo trixie ;;
        18 | 18a) echo forky ;;
        19) echo sid ;;
        *) return 1 ;;
    esac
}

# What the tests need, as packages; 19 is not in sid itself, but in experimental, for which sid is the base. -pgbouncer, -psycopg2 and -psycopg for the tests that are skipped without them.
packages() {
    local postgresql=postgresql-$1,postgresql-server-dev-$1,libpq-dev
    case $1 in *a) postgresql=bison,flex,openssl ;; 19) postgresql=ca-certificates ;; esac
    echo "$postgresql,libssl-dev,gcc,libc6-dev,make,perl,libipc-run-perl,pgbouncer,python3-psycopg2,python3-psycopg"
}

# Where the version's pg_config is, within its folder.
release_pg_config() {
    case $1 in
        *a) echo /usr/local/pgsql/bin/pg_config ;;
        *) echo "/usr/lib/postgresql/$1/bin/pg_config" ;;
    esac
}

# Runs a command with mounts, processes and System V shared memory of its own, which end with it.
contained() { unshare --mount --pid --ipc --fork --kill-child "$@"; }

# Runs a command within a folder: $work is its /tmp, this tree its /mnt. Bash is not replaced by it, for the first process of
# a PID namespace has to wait for orphans. With a third argument, a folder, the command may write: what it writes is there.
# shellcheck disable=SC2016,SC2154   # expanded by the inner shell; to be set
within_folder() {
    contained bash -ec '
        dir=$1 work=$2 written=$3
        shift 3
        if [ -n "$written" ]; then
            mkdir -p "$written/files" "$written/work" "$written/root"
            mount -t overlay overlay -o "lowerdir=$dir,upperdir=$written/files,workdir=$written/work" "$written/root"
            dir=$written/root
        fi
        mount --bind "$PWD" "$dir/mnt"
        mount -o remount,bind,ro "$dir/mnt"
        mount --bind "$work" "$dir/tmp"
        mount --bind /dev "$dir/dev"
        mount -t tmpfs -o mode=1777 tmpfs "$dir/dev/shm"
        mount -t devpts -o newinstance,ptmxmode=0666 devpts "$dir/dev/pts"
        mount -t proc proc "$dir/proc"
        chroot "$dir" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
        exit' contained "$1" "$work" "$2" "${@:3}"
}
within() { within_folder "$cache/$1" '' "${@:2}"; }

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
    if [ "$version" = 19 ]; then
        echo 'deb http://deb.debian.org/debian experimental main' >>"$dir/etc/apt/sources.list"
        within "$version" timeout 600 sh -c 'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends -t experimental install \
            postgresql-19 postgresql-server-dev-19 libpq-dev && apt-get clean'
        return
    fi
    echo "deb http://deb.debian.org/debian-security $(release "$version")-security main" >>"$dir/etc/apt/sources.list"
    within "$version" timeout 300 sh -c 'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -qy upgrade && apt-get clean'
}

# Builds PostgreSQL within the version's folder: the server, its programs, what PGXS and the TAP tests need, and the contrib modules that tests load.
# An assertion in xact.c forgets that triggers and held cursors run during a commit, where BeginInternalSubTransaction() allows subtransactions: an exception
# block of PL/pgSQL in a deferred trigger fails it.
build_with_assertions() {
    local version=$1 dir=$cache/$1
    postgresql_source "${version%a}" "$(release "$version")" "$dir/usr/src" || return
    # shellcheck disable=SC2016   # expanded within the folder
    within "$version" timeout 3600 sh -ec '
        cd /usr/src/postgresql-*/
        perl -0pi -e "s/(TBLOCK_IMPLICIT_INPROGRESS \|\|[^;]*s->blockState == TBLOCK_STARTED)\);/\$1 || s->blockState == TBLOCK_END || s->blockState == TBLOCK_PREPARE);/g == 1 or die" \
            src/backend/access/transam/xact.c
        ./configure -q --enable-cassert --enable-tap-tests --with-ssl=openssl --without-icu --without-readline --without-zlib \
            CFLAGS="-O1 -g -fno-omit-frame-pointer"
        for part in . contrib/auto_explain contrib/postgres_fdw; do
            make -s -j"$(nproc)" -C $part
            make -s -C $part install
        done
        rm -rf /usr/src/*'
}

make_folder() {
    install_release "$1" || return
    case $1 in *a) build_with_assertions "$1" ;; esac
}

# What the folder is made of.
recipe() {
    packages "$1"
    case $1 in *a) declare -f build_with_assertions ;; esac
}

# Makes the folder of the version, unless it is there. It is whole once its recipe is beside it, as NAME.packages.
bootstrap() {
    local version=$1 dir=$cache/$1
    mkdir -p "$cache" || return
    exec 9>"$cache/$version.lock"
    flock 9 || return
    if [ "$(cat "$dir.packages" 2>/dev/null)" != "$(recipe "$version")" ]; then
        NEEDED=$folders_need test/lib/packages.sh >/dev/null || return
        echo "Making $dir"
        rm -rf --one-file-system "$dir.packages" "$dir"
        make_folder "$version" </dev/null >"$cache/$version.log" 2>&1 9>&- || { tail -n 5 "$cache/$version.log"; return 1; }
        recipe "$version" >"$dir.packages"
    fi
    exec 9>&-
}
