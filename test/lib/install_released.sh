#!/usr/bin/env bash
# Within the sandbox: makes a second private installation, with a released version of queue_jobs in place of this tree's.
#
#   install_released.sh VERSION DIRECTORY     prints the directory of its programs
#
# The version's source is kept in test/data. SERVER_PG_CONFIG (from sandbox.sh) is the installation that the sandbox copied.
set -euo pipefail

version=$1
to=$2
bindir=$(pg_config --bindir)
sandbox=${bindir%"${bindir#*/pg/}"}
mkdir -p "$to/installation" "$to/source"
cp -a "$sandbox." "$to/installation"
find "$to/installation" -name 'queue_jobs*' -prune -exec rm -rf {} +
tar -xzf "test/data/queue_jobs-$version.tar.gz" -C "$to/source"
make -s -C "$to/source" -j2 PG_CONFIG="$SERVER_PG_CONFIG" >&2
make -s -C "$to/source" install PG_CONFIG="$SERVER_PG_CONFIG" DESTDIR="$to/installation" >&2
echo "$to/installation/${bindir#"$sandbox"}"
