#!/usr/bin/env bash
# All tests, or those of TESTS and TAP, with a library that checks each of its accesses to memory (AddressSanitizer) and its
# arithmetic (UndefinedBehaviorSanitizer). To be run in a sandbox with SANITIZE=1. What they find stands in the servers' logs;
# it is printed at the end and makes the run fail, whatever the tests say.
#
# The server is the distribution's, and not built for this: the sanitizers are loaded into it beforehand. So malloc() is
# theirs, and an access beyond or after a block is seen where it is made by our library, or by a function of the C library's
# that they stand in for, whoever called it. Not seen are overruns that stay within a memory context's block of several
# chunks: these are for a server that is built with assertions (docs/explanation/reliability.md).
set -uo pipefail

# Some library that the server is linked with calls bindtextdomain() before libasan is ready, and leaves glibc's lock on its
# catalogs in a state that the next call waits for: so nothing is translated.
gcc -shared -fPIC -x c -o no_gettext.so - <<'CODE' || exit 1
char *bindtextdomain(const char *domain, const char *directory) { return (char *) directory; }
CODE

# Only the server is started with them; psql, perl and all else are as they were.
#   detect_leaks=0                     a process ends without freeing what it allocated at its start
#   detect_stack_use_after_return=0    the server measures the depth of its stack by addresses of variables
#   handle_…=0                         what signals do is the server's business, and tested
#   quarantine_size_mb=16              tests bound a process's memory: what it freed long before is not in it
#   abort_on_error=1                   a crash for the server, and so for the test
# It keeps its name, by which pg_ctl starts it again and a copy finds its own files (t/life_upgrade_in_use.pl), and what a test loads into it (t/fault_clocks.pl).
postgres=$(command -v postgres)
mv "$postgres" "$postgres.plain"
cat >"$postgres" <<WRAPPER
#!/bin/bash
export LD_PRELOAD='$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so) $PWD/no_gettext.so'" \$LD_PRELOAD"
export ASAN_OPTIONS=quarantine_size_mb=16:abort_on_error=1:detect_leaks=0:detect_stack_use_after_return=0:handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigill=0:handle_sigfpe=0
exec -a "\$0" "\$(dirname "\$0")/postgres.plain" "\$@"
WRAPPER
chmod 755 "$postgres"
timeout 60 postgres -V || { echo 'the server does not start with the sanitizers'; exit 1; }

test/lib/run_tests.sh
status=$?
found=$(find . -name '*.log' -exec grep -hE -A 12 ': runtime error: |==[0-9]+==ERROR: AddressSanitizer' {} +)
[ -n "$found" ] || { echo 'the sanitizers have found nothing'; exit $status; }
echo "--- found by the sanitizers"
head -n 300 <<<"$found"
exit 1
