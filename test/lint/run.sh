#!/usr/bin/env bash
# clang-tidy (.clang-tidy says what is checked) and cppcheck over src and web. Fails if either has anything to say.
#
#   ANALYZE=1   clang's static analyzer in place of clang-tidy's other checks: ten minutes and more
set -uo pipefail
cd "$(dirname "$0")/../.." || exit

for tool in clang-tidy cppcheck; do
    command -v "$tool" >/dev/null || { echo "make lint needs $tool (apt install $tool)" >&2; exit 1; }
done
status=0
make -s src/base/attribute_numbers.h || status=1
test/lint/floors.pl || status=1
test/lint/names.pl || status=1

# The server's headers as the system's: what is said of them is not ours to mend.
# shellcheck disable=SC2317   # called by the inner shell
tidy() {
    # shellcheck disable=SC2086   # a word each
    clang-tidy --quiet ${ANALYZE:+"--checks=-*,clang-analyzer-*,-clang-analyzer-security.insecureAPI.*"} "$@" -- \
        -isystem "$includes" -isystem "$libpq_includes" $folders -D_GNU_SOURCE '-DQUEUE_JOBS_VERSION="0"' -std=gnu11 -w 2>/dev/null
}
includes=$("${PG_CONFIG:-pg_config}" --includedir-server)
libpq_includes=$("${PG_CONFIG:-pg_config}" --includedir)
folders=$(printf -- '-I%s ' src/*/)
export includes libpq_includes folders
export -f tidy
# shellcheck disable=SC2016   # expanded by the inner shell
printf '%s\0' src/*.c src/*/*.c | xargs -0 -n 8 -P 2 bash -c 'tidy "$@"' tidy || status=1
# shellcheck disable=SC2046   # a word each
clang-tidy --quiet ${ANALYZE:+"--checks=-*,clang-analyzer-*,-clang-analyzer-security.insecureAPI.*"} $(find web -maxdepth 1 -name '*.c' ! -name assets.c) -- \
    -isystem "$libpq_includes" -Iweb -D_GNU_SOURCE '-DQUEUE_JOBS_VERSION="0"' -std=c99 -w 2>/dev/null || status=1

# legacyUninitvar: an initializer {.callback = …} of a variable callback is taken for a use of it.
# nullPointerRedundantCheck: in database_slot.c it takes two variables of a loop for one.
# shellcheck disable=SC2086
cppcheck --quiet --std=c11 --enable=warning,portability,performance --error-exitcode=1 --max-configs=1 -j 2 --include=test/lint/server.h \
    --suppress=legacyUninitvar --suppress=nullPointerRedundantCheck:src/shared/database_slot.c $folders src || status=1
cppcheck --quiet --std=c99 --enable=warning,portability,performance --error-exitcode=1 --max-configs=1 --suppress=missingInclude -Iweb web || status=1
[ $status -ne 0 ] || echo 'lint: nothing found'
exit $status
