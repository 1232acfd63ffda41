#!/usr/bin/env bash
# Builds the counting server of make scale: Debian's source of PostgreSQL 15, in which each LWLock, spinlock and pin is counted by the
# process that takes it (count.h, report.c). Prints the program's path. This is no server for anything else.
#
#   CACHE  where it is built, and kept for the next time; default: /var/tmp/queue_jobs_scale. 600 MB.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=test/lib/postgresql_source.sh
. "$here/../lib/postgresql_source.sh"
cache=${CACHE:-/var/tmp/queue_jobs_scale}
installed=$cache/pg
stamp=$(cat "$here"/{count.h,report.c,server.sh} | sha256sum)
if [ "$(cat "$installed/stamp" 2>/dev/null)" = "$stamp" ]; then
    echo "$installed/postgres"
    exit
fi
exec 3>&1 >&2

# The places at which lwlock.c and bufmgr.c take and release; each must be there.
instrument() {
    perl -0pi -e '
        my $n = 0;
        $n += s/^static const char \*GetLWTrancheName\(uint16 trancheId\);/$&\n#include "report.c"/m;
        $n += s/^(\s*)(held_lwlocks\[num_held_lwlocks\]\.lock = lock;)/$1scale_acquired(lock, mode);\n$1$2/mg;
        $n += s/^(\s*)(mode = held_lwlocks\[i\]\.mode;)/$1$2\n$1scale_released(lock, mode);/mg;
        $n += s/^(\s+)(LWLockReportWaitStart\(lock\);)/$1$2\n$1scale_blocked(lock);/mg;
        $n += s/(\nCreateLWLocks\(void\)\n\{)/$1\n\tscale_create();/;
        $n += s/(\nInitLWLockAccess\(void\)\n\{)/$1\n\tscale_init();/;
        $n == 10 or die "lwlock.c: $n places in place of 10\n"' src/backend/storage/lmgr/lwlock.c
    perl -0pi -e '
        my $n = s/^(\s*)(ref = NewPrivateRefCountEntry\(b\);)/$1$2\n$1scale_pinned(buf);/mg;
        $n += s/(\n#define BUF_WRITTEN)/\nextern void scale_pinned(const void *buffer);\n$1/;
        $n == 3 or die "bufmgr.c: $n places in place of 3\n"' src/backend/storage/buffer/bufmgr.c
}

mkdir -p "$installed"
cp "$here"/count.h "$here"/report.c "$installed"
if ! ls "$cache"/postgresql-15.*/config.status >/dev/null 2>&1; then
    postgresql_source 15 bookworm "$cache"
    cd "$cache"/postgresql-15.*
    instrument
    ./configure -q --prefix="$installed" --without-readline --without-zlib CFLAGS='-O2 -g1' CPPFLAGS="-include $installed/count.h -I$installed"
fi
cd "$cache"/postgresql-15.*
touch src/backend/storage/lmgr/lwlock.c          # has report.c in it
make -s -j"$(nproc)" -C src/backend generated-headers
make -s -j"$(nproc)" -C src/port all
make -s -j"$(nproc)" -C src/common all
make -s -j"$(nproc)" -C src/backend all
install -m 755 src/backend/postgres "$installed/postgres"
chmod -R a+rX "$cache"
echo "$stamp" >"$installed/stamp"
echo "$installed/postgres" >&3
