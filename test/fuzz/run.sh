#!/usr/bin/env bash
# run.sh SECONDS: each parser is fed by libFuzzer for so long, with address and undefined-behaviour checks; then the inputs that
# reached new code once more without these, under valgrind, which sees uninitialised values as well. What it finds is
# left as crash-* in the folder that is printed.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=$1
tree=$PWD
command -v clang >/dev/null || { echo "fuzzing needs clang (apt install clang)" >&2; exit 1; }
command -v valgrind >/dev/null || { echo "fuzzing needs valgrind (apt install valgrind)" >&2; exit 1; }
# Headers of the parsers include it, and it is made at build.
make -s src/base/attribute_numbers.h
work=$(mktemp -d /tmp/queue_jobs_fuzz.XXXXXX)
status=0
compile_web() {
    clang -std=c99 -gdwarf-4 -O1 -w -D_GNU_SOURCE -DLIBFUZZER -Iweb -I"$("${PG_CONFIG:-pg_config}" --includedir)" \
        web/test/fuzz.c web/request.c web/filter.c web/buffer.c "$@"
}
compile() {
    [ "$1" != request ] || { compile_web "${@:2}"; return; }
    # A parser's file has functions, too, that need the server: a call of one of these would be a crash.
    # shellcheck disable=SC2046   # a word each
    clang -std=gnu11 -gdwarf-4 -O1 -w -ffunction-sections -Wl,--gc-sections -no-pie -fno-pie -Wl,--unresolved-symbols=ignore-in-object-files $(printf -- '-I%s ' src/*/) -Itest/fuzz -I"$("${PG_CONFIG:-pg_config}" --includedir-server)" \
        "test/fuzz/$1.c" test/fuzz/backend.c src/*/"$1.c" "$("${PG_CONFIG:-pg_config}" --bindir)/../lib/libpgport.a" "${@:2}"
}
for parser in cron selector request; do
    compile "$parser" -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -o "$work/$parser"
    compile "$parser" -fsanitize=fuzzer -o "$work/$parser.plain"
    mkdir "$work/$parser.inputs"
    if (cd "$work" && "./$parser" -max_total_time="$seconds" -timeout=5 -max_len=200 -dict="$tree/test/fuzz/$parser.dict" \
            -print_final_stats=1 "$parser.inputs") >"$work/$parser.log" 2>&1; then
        echo "ok: $parser, $(grep -oP 'number_of_executed_units: \K\d+' "$work/$parser.log") inputs in $seconds s"
    else
        tail -n 40 "$work/$parser.log"
        echo "not ok: $parser ($work)"
        status=1
    fi
    if (cd "$work" && valgrind -q --error-exitcode=1 "./$parser.plain" -runs=0 "$parser.inputs") >"$work/$parser.valgrind" 2>&1; then
        echo "ok: $parser, $(find "$work/$parser.inputs" -type f | wc -l) of them under valgrind"
    else
        tail -n 40 "$work/$parser.valgrind"
        echo "not ok: $parser under valgrind ($work)"
        status=1
    fi
done
[ $status != 0 ] || rm -rf "$work"
exit $status
