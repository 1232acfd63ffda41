#!/usr/bin/env bash
# All tests, or those of TESTS and TAP, with a library that counts the lines it runs; then a table of the shares. To be run in
# a sandbox with COVERAGE=1. What a process that was killed has run is not counted. With KEEP=1 the *.gcov files stay in the
# tree: what begins with ##### was never run.
set -uo pipefail

test/lib/run_tests.sh
status=$?
for source in src/*.c src/*/*.c; do
    gcov --object-directory "$(dirname "$source")" "$source" 2>/dev/null | grep -A 1 "^File 'src/.*\.c'" | grep -oP "src/[\w/]+\.c|executed:\K.*" | paste - -
done | awk '{ sub("%", "", $2); lines += $4; run += $2 * $4 / 100; printf "%6.1f %% of %4d lines  %s\n", $2, $4, $1 | "sort -n" }
    END { close("sort -n"); printf "%6.1f %% of %4d lines in all\n", 100 * run / lines, lines }'
exit $status
