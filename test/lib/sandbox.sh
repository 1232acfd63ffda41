#!/usr/bin/env bash
# Runs a command where tests and demo can do no harm: in a copy of this tree, built and installed into a private copy
# of PostgreSQL, as an ordinary user. Nothing of it is left behind.
#
#   sandbox.sh COMMAND [ARGUMENT…]
#
# A private installation, for then neither root nor a writable system is needed, and several checkouts can be tested
# at once. PostgreSQL finds its files relative to its programs, so real copies of the programs beside links to
# everything else are an installation. A copy of the tree and another user if we are root, for a server refuses
# to run as root, and an ordinary user may not see root's directories.
#
#   PG_CONFIG   the PostgreSQL to copy (see packages.sh)
#   COVERAGE=1  count the lines that are run (see coverage.sh)
#   TEST_POINTS=1  with the places at which a test can have a process wait or die (src/base/test_point.h)
#   SANITIZE=1  check each access to memory, and arithmetic (see sanitize.sh)
#   KEEP=1      say where the directory is, and leave it, with results and logs, for a look
#
# The command finds the private programs first in its PATH; $PGXS_DIR, where PGXS keeps the test drivers; and $SERVER_PG_CONFIG, to
# build with.
set -euo pipefail
cd "$(dirname "$0")/../.."

pg_config=$(test/lib/packages.sh)
user=$(id -un)
created=
root() { [ "$(id -u)" -eq 0 ]; }

# Runs a command as the ordinary user, in the copied tree, with nothing of the caller's that would steer PostgreSQL.
as_user() {
    (
        cd "$work/tree"
        unset "${!PG@}" "${!LC_@}" LANGUAGE
        export HOME=$work TMPDIR=$work LANG=C.UTF-8 PATH="$installed$bindir:$PATH" PGXS_DIR="$pgxs_dir" SERVER_PG_CONFIG="$pg_config" \
            ${timeout:+PG_TEST_TIMEOUT_DEFAULT="$timeout"}
        if root; then
            exec setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups "$@"
        fi
        exec "$@"
    )
}

# Stops servers that an interrupted command left, then removes everything.
cleanup() {
    find "$work" -name postmaster.pid 2>/dev/null | while read -r pid_file; do
        as_user pg_ctl -s -D "$(dirname "$pid_file")" -m immediate stop || true
    done
    [ -n "${KEEP:-}" ] || rm -rf "$work"
    [ -z "$created" ] || userdel "$user" || true
}

# Copies the installation of $PG_CONFIG to $installed, except an earlier queue_jobs.
copy_postgresql() {
    local dir
    mkdir -p "$installed$bindir"
    cp "$bindir"/* "$installed$bindir"
    for dir in "$pkglibdir" "$sharedir" "$sharedir/extension"; do
        mkdir -p "$installed$dir"
        find "$dir" -mindepth 1 -maxdepth 1 ! -name 'queue_jobs*' ! -path "$sharedir/extension" \
            -exec ln -s -t "$installed$dir" {} +
    done
}

bindir=$("$pg_config" --bindir)
pkglibdir=$("$pg_config" --pkglibdir)
sharedir=$("$pg_config" --sharedir)
pgxs_dir=$(dirname "$(dirname "$("$pg_config" --pgxs)")")
timeout=${PG_TEST_TIMEOUT_DEFAULT:-360}

# Root's own TMPDIR may be closed to others. (Not too deep, please: a socket's path has to stay under 108 characters.)
if root; then unset TMPDIR; fi
work=$(mktemp -d -t queue_jobs.XXXXXX)
installed=$work/pg
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

if root; then
    user=postgres
    if ! id "$user" >/dev/null 2>&1; then
        user=queue_jobs_test
        id "$user" >/dev/null 2>&1 || { useradd --system --no-create-home --home-dir "$work" "$user" && created=yes; }
    fi
fi

version=$("$pg_config" --version)
echo "Copying the programs of $version to $work$([ -n "${KEEP:-}" ] && echo ", which is kept" || echo ", which is removed at the end")"
mkdir "$work/tree"
tar -c --exclude=./.git --exclude=./web/queue_jobs_web --exclude='*.o' --exclude='*.so' --exclude=./tmp_check --exclude=./tmp_check_iso \
    --exclude=./output_iso --exclude=./results --exclude=./log . | tar -x --no-same-owner -C "$work/tree"
copy_postgresql
! root || chown -R -h "$user": "$work"

# -Werror here only, see the Makefile.
copt="-Werror${COVERAGE:+ --coverage}${TEST_POINTS:+ -DQUEUE_JOBS_TEST_POINTS}${SANITIZE:+ -fsanitize=address,undefined,float-cast-overflow -fno-wrapv}"
echo "Building with $version, as user $user"
as_user make -s -j2 PG_CONFIG="$pg_config" COPT="$copt"
echo 'Installing it in the copy'
as_user make -s install PG_CONFIG="$pg_config" COPT="$copt" DESTDIR="$installed"

as_user "$@"
