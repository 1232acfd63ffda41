#!/usr/bin/env bash
# Indents C as PostgreSQL does, except that a line may have 110 columns, and that a space stays behind a comma before a designator.
#
#   indent.sh [FILE...]      these files; without any, those of src and web that differ from HEAD
#   indent.sh --typedefs     writes typedefs.list, the names of types, from the debug information of queue_jobs.so; after new types
#
# It takes PostgreSQL's own indent, which Debian has in postgresql-server-dev-17 and later, and PostgreSQL's source in src/tools/pg_bsd_indent.
# PG_BSD_INDENT names it where it is found in none of these.
set -euo pipefail
cd "$(dirname "$0")/../.."
types=test/lint/typedefs.list

if [ "${1:-}" = --typedefs ]; then
    objdump --dwarf=info queue_jobs.so | awk '/DW_TAG/ { typedef = /DW_TAG_typedef/ } typedef && /DW_AT_name/ { print $NF; typedef = 0 }' | LC_ALL=C sort -u >"$types.new"
    [ -s "$types.new" ] || { echo "queue_jobs.so has no debug information: build it with -g" >&2; exit 1; }
    mv "$types.new" "$types"
    exit
fi
indent=${PG_BSD_INDENT:-}
for found in "$("${PG_CONFIG:-pg_config}" --bindir)/pg_bsd_indent" /usr/lib/postgresql/*/bin/pg_bsd_indent; do
    [ -z "$indent" ] && [ -x "$found" ] && indent=$found
done
[ -n "$indent" ] || { echo "There is no pg_bsd_indent (apt install postgresql-server-dev-17, or name it: PG_BSD_INDENT=...)" >&2; exit 1; }
files=("$@")
[ $# -gt 0 ] || mapfile -t files < <(git diff --name-only --diff-filter=d HEAD -- 'src/*.[ch]' 'web/*.[ch]')
for file in "${files[@]}"; do
    new=$(mktemp)
    "$indent" -bad -bap -bbb -bc -bl -cli1 -cp33 -cdb -nce -d0 -di12 -nfc1 -i4 -l110 -lp -lpl -nip -npro -sac -tpg -ts4 -U"$types" "$file" "$new"
    perl -pe 's/(?<=[^\s,({]),\.(?=[a-z_]\w*(?:\.\w+)*\s*=)/, ./g' "$new" >"$file"
    rm "$new"
done
