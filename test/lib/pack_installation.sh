#!/usr/bin/env bash
# Within the sandbox: copies its PostgreSQL, queue_jobs included, to a directory from which it runs also where the libraries
# are another release's, as pg_upgrade's old version.
#
#   pack_installation.sh DIRECTORY     DIRECTORY/bin has the programs
set -euo pipefail

to=$1
bindir=$(pg_config --bindir)
installed=${bindir%"${bindir#*/pg/}"}
mkdir -p "$to/bin" "$to/libraries"
cp -rL "$installed." "$to"
# What was built against the old libraries brings them along, except those of the C library, which go with the kernel's loader;
# and except JIT, whose libraries are large.
find "$to" -name 'llvmjit*' -delete
ldd "$to/${bindir#"$installed"}"/* "$(pg_config --pkglibdir)"/{plpgsql,queue_jobs}.so 2>/dev/null |
    sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv)\.so' |
    xargs cp -L -t "$to/libraries"
for program in "$to/${bindir#"$installed"}"/*; do
    script=$to/bin/${program##*/}
    # shellcheck disable=SC2016   # expanded when it runs; relative to itself, for the directory is mounted elsewhere
    printf '#!/bin/sh\nold=${0%%/bin/*}\nLD_LIBRARY_PATH=$old/libraries exec "$old/%s" "$@"\n' "${program#"$to/"}" >"$script"
    chmod 755 "$script"
done
