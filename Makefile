# make && make install       build and install (PG_CONFIG=… for another than the first in the PATH)
# make installcheck          test a running server whose shared_preload_libraries has queue_jobs
# make test                  all tests, from nothing: own servers, own installation   (TESTS=, TAP=, KEEP=1: test/lib)
# make test-matrix           the same with PostgreSQL 15, 17 and 18, as root   (VERSIONS=, CACHE=: test/lib/matrix.sh)
# make sanitize              the same with AddressSanitizer and UndefinedBehaviorSanitizer in the server   (TESTS=, TAP=)
# make fuzz [FUZZ_SECONDS=60]  parsers, args and times under random input
# make lint                  clang-tidy and cppcheck   (ANALYZE=1: clang's static analyzer)
# make faults [SECONDS=60]   load of every kind, while processes are killed and the server is stopped (docs/reliability.md)
# make demo                  see it work, on a server that is thrown away afterwards
# make dist                  the PGXN archive of HEAD

EXTENSION  = queue_jobs
# The version stands once, in the control file.
EXTVERSION = $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" $(EXTENSION).control)
MODULE_big = $(EXTENSION)
OBJS = \
	src/queue_jobs.o \
	src/settings.o \
	src/arguments.o \
	src/job.o \
	src/retry.o \
	src/catalog.o \
	src/run_as.o \
	src/hold.o \
	src/session_hold.o \
	src/dedup.o \
	src/duplicates.o \
	src/record.o \
	src/heal.o \
	src/cron.o \
	src/command.o \
	src/schedule.o src/schedule_clock.o \
	src/pg_cron.o \
	src/run_once.o \
	src/handler.o \
	src/registry.o \
	src/subscription.o \
	src/selector.o \
	src/routing.o \
	src/pools.o \
	src/define_schedule.o \
	src/define_worker.o \
	src/lane.o \
	src/index_writer.o \
	src/limit.o \
	src/park.o \
	src/rate.o \
	src/capacity.o \
	src/order.o \
	src/store.o src/live_row.o \
	src/history.o \
	src/location.o \
	src/consistency.o \
	src/feature_flag.o \
	src/replica.o \
	src/replica_connection.o \
	src/read.o \
	src/standby.o \
	src/wait.o \
	src/outcome.o \
	src/enqueue.o \
	src/claim.o src/claimant.o \
	src/steer.o \
	src/migrate.o \
	src/job_row.o \
	src/current_job.o \
	src/shared.o \
	src/executor_slot.o \
	src/clock.o \
	src/lane_hint.o src/key_hint.o \
	src/wakeup.o \
	src/make_way.o \
	src/process.o \
	src/launcher.o \
	src/demand.o \
	src/scheduler.o \
	src/executor.o \
	src/interruption.o \
	src/execute.o src/run_timeout.o src/heads.o src/take.o src/task.o \
	src/call.o \
	src/session.o \
	src/subtransaction.o \
	src/table_changes.o \
	src/assert_idempotent.o \
	src/statistics.o \
	src/advice.o \
	src/run_log.o \
	src/crash_delay.o src/crash_ledger.o \
	src/test_point.o

PG_CPPFLAGS = -I$(srcdir)/src -I$(libpq_srcdir) -DQUEUE_JOBS_VERSION='"$(EXTVERSION)"'
SHLIB_LINK = $(libpq)
# The exceptions are what the server's own headers trip over. `make test` adds -Werror (COPT): here a newer compiler's
# new warning would only keep people from installing.
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers
# No bitcode: nothing here is worth inlining into a query, and building would need clang.
override with_llvm := no

# The parts of the install script, in this order.
SQL_PARTS = \
	src/sql/00_guard.sql \
	src/sql/10_schema.sql \
	src/sql/20_tables.sql \
	src/sql/30_views.sql \
	src/sql/40_functions.sql \
	src/sql/50_privileges.sql
DATA_built = src/sql/$(EXTENSION)--$(EXTVERSION).sql
# Update scripts, and the whole scripts of versions that they begin at.
DATA       = $(filter-out $(DATA_built),$(wildcard src/sql/$(EXTENSION)--*.sql))

REGRESS        = setup registry enqueue two_phase enqueue_many execute fail claim steer views states bad_input privileges rights history dedup dedup_updates duplicates idempotent record cron schedule limits selectors migrate statistics teardown
ISOLATION      = claim_claim claim_cancel claim_complete enqueue_rollback fencing steer_claim disable_worker isolation_levels lane_creation pause_claim falls_due passed_over dedup_until_executing dedup_until_executed dedup_steered dedup_many key_hint run_once lock_record record_layers limit_slots migrate
ISOLATION_OPTS = --inputdir=test/isolation
TAP_TESTS      = 1
PROVE_TESTS    = test/t/*.pl

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
# Both, for Debian has them in two packages.
ifneq ($(and $(wildcard $(PGXS)),$(wildcard $(shell $(PG_CONFIG) --includedir-server)/postgres.h)),)
include $(PGXS)
else
# `make test` and `make demo` install what is missing, so this file must work without PGXS, too.
all install installcheck clean:
	@echo "No PGXS, or no headers of the server: install its development files, or name its pg_config: make PG_CONFIG=…" >&2; exit 1
endif
override PROVE_FLAGS += -I test/lib

$(OBJS): $(wildcard src/*.h)

$(DATA_built): $(SQL_PARTS) $(EXTENSION).control Makefile
	cat $(SQL_PARTS) > $@

test:
	@REGRESS='$(REGRESS)' ISOLATION='$(ISOLATION)' PG_CONFIG='$(PG_CONFIG)' TEST_POINTS=1 test/lib/sandbox.sh test/lib/run_tests.sh

coverage:
	@REGRESS='$(REGRESS)' ISOLATION='$(ISOLATION)' PG_CONFIG='$(PG_CONFIG)' TEST_POINTS=1 COVERAGE=1 test/lib/sandbox.sh test/lib/coverage.sh

sanitize:
	@REGRESS='$(REGRESS)' ISOLATION='$(ISOLATION)' PG_CONFIG='$(PG_CONFIG)' SANITIZE=1 test/lib/sandbox.sh test/lib/sanitize.sh

test-matrix:
	@REGRESS='$(REGRESS)' ISOLATION='$(ISOLATION)' PG_CONFIG='$(PG_CONFIG)' test/lib/matrix.sh

faults: SECONDS = 60
faults:
	@QUEUE_JOBS_STRESS_SECONDS='$(SECONDS)' TESTS=tap TAP='test/t/061_faults.pl test/t/062_promotion_faults.pl test/t/063_clocks.pl' VERBOSE=1 PG_CONFIG='$(PG_CONFIG)' \
		test/lib/sandbox.sh test/lib/run_tests.sh

demo:
	@PG_CONFIG='$(PG_CONFIG)' test/lib/sandbox.sh test/demo/demo.sh

# The archive's META.json is the only place that needs the version in it: it is put in here.
dist: release = $(EXTENSION)-$(EXTVERSION)
dist:
	git archive --format=zip --output=$(release).zip --prefix=$(release)/ \
		--add-virtual-file=$(release)/META.json:"$$(sed 's/@EXTVERSION@/$(EXTVERSION)/' META.json)" HEAD . ':(exclude)META.json'

# An hour's light load of every kind; a line a minute (docs/reliability.md).
MINUTES ?= 60
RATE ?= 50
soak:
	@PG_CONFIG='$(PG_CONFIG)' test/lib/sandbox.sh test/soak/soak.sh $(MINUTES) $(RATE)

# The pure parsers under libFuzzer, each for so many seconds; then args and times in a server.
FUZZ_SECONDS ?= 60
fuzz:
	@PG_CONFIG='$(PG_CONFIG)' test/fuzz/run.sh $(FUZZ_SECONDS)
	@QUEUE_JOBS_STRESS_SECONDS='$(FUZZ_SECONDS)' TESTS=tap TAP=test/t/064_fuzzed_args.pl VERBOSE=1 PG_CONFIG='$(PG_CONFIG)' \
		test/lib/sandbox.sh test/lib/run_tests.sh

lint:
	@PG_CONFIG='$(PG_CONFIG)' test/lint/run.sh

.PHONY: test test-matrix coverage sanitize faults demo dist fuzz lint soak

# Measurements, each on a server that is thrown away: docs/benchmark says what is measured.
#   make bench [FULL=1] [WORKLOADS=enqueue,…] [COMPETITORS=…] [ROUNDS=3] [DURATION=1] [CLIENTS=1,8] …
#   make bench-latency [LATENCY_JOBS=500]
#   make bench-replica [READ_JOBS=1000]
#   make bench-exactly-once [NOOPS=100000] [UPDATES=10000] [CLAIMANTS=8] [BATCH=10]
BENCH_PARAMETERS = FULL WORKLOADS COMPETITORS ROUNDS HELD_ROUNDS DURATION CLIENTS SCALE HOLD STEADY IDLE LOADS
bench:
	@json=$$(mktemp) && trap 'rm -f "$$json"' EXIT || exit 1; \
		NEEDED='python3:python3 gnuplot:gnuplot-nox' PG_CONFIG='$(PG_CONFIG)' \
		WISHED='node:nodejs npm:npm /usr/share/postgresql/@/extension/pgq.control:postgresql-@-pgq3' \
		SETTINGS='shared_buffers = 2GB;max_wal_size = 8GB;$(SETTINGS)' COMMIT="$$(git describe --always --dirty 2>/dev/null)" \
		$(foreach name,$(BENCH_PARAMETERS),$(name)='$($(name))') test/lib/sandbox.sh test/bench/run.sh bench 3>"$$json"; status=$$?; \
		[ ! -s "$$json" ] || python3 -B test/bench/report.py "$$json" docs/benchmark || status=1; exit $$status

bench-latency:
	@PG_CONFIG='$(PG_CONFIG)' test/lib/sandbox.sh test/bench/run.sh latency --jobs=$(LATENCY_JOBS)

bench-exactly-once:
	@PG_CONFIG='$(PG_CONFIG)' test/lib/sandbox.sh test/bench/run.sh exactly_once \
		--noops=$(NOOPS) --updates=$(UPDATES) --claimants=$(CLAIMANTS) --batch=$(BATCH)

bench-replica:
	@PG_CONFIG='$(PG_CONFIG)' READ_JOBS='$(READ_JOBS)' test/lib/sandbox.sh test/bench/replica_cpu.sh

.PHONY: bench bench-latency bench-exactly-once bench-replica
