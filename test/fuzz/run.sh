#!/usr/bin/env bash
# run.sh SECONDS: each parser is fed by libFuzzer for so long, with address and undefined-behaviour checks. What it finds is
# left as crash-* in the folder that is printed; inputs that reach new code are thrown away.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=$1
tree=$PWD
command -v clang >/dev/null || { echo "fuzzing needs clang (apt install clang)" >&2; exit 1; }
work=$(mktemp -d /tmp/queue_jobs_fuzz.XXXXXX)
status=0
for parser in cron selector; do
    clang -std=gnu11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -w -ffunction-sections -Wl,--gc-sections -Isrc -Itest/fuzz \
        -I"$("${PG_CONFIG:-pg_config}" --includedir-server)" test/fuzz/$parser.c test/fuzz/backend.c src/$parser.c \
        "$("${PG_CONFIG:-pg_config}" --bindir)/../lib/libpgport.a" -o "$work/$parser"
    mkdir "$work/$parser.inputs"
    if (cd "$work" && "./$parser" -max_total_time="$seconds" -timeout=5 -max_len=200 -dict="$tree/test/fuzz/$parser.dict" \
            -print_final_stats=1 "$parser.inputs") >"$work/$parser.log" 2>&1; then
        echo "ok: $parser, $(grep -oP 'number_of_executed_units: \K\d+' "$work/$parser.log") inputs in $seconds s"
    else
        tail -n 40 "$work/$parser.log"
        echo "not ok: $parser ($work)"
        status=1
    fi
done
[ $status != 0 ] || rm -rf "$work"
exit $status
