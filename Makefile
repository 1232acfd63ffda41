# make && make install       build and install (PG_CONFIG=… for another than the first in the PATH)
# make install-tree TREE=…   into a folder that PostgreSQL 18 and later find by extension_control_path (docs/how-to/install.md)
# make installcheck          test a running server whose shared_preload_libraries has queue_jobs   (TAP_TESTS= for the quick tests only)
# make test                  all tests, from nothing: own servers, own installation   (TESTS=, TAP=, KEEP=1: test/lib)
# make quick                 some tests of each kind on which all others rest: under two minutes
# make clients-test          those of the clients alone   (QUEUE_JOBS_SCENARIO=, QUEUE_JOBS_CLIENT_JOBS=: test/clients)
# make test-matrix           the same with PostgreSQL 15, 17, 18 and 19, 18 built with assertions, as root   (VERSIONS=, CACHE=: test/lib/matrix.sh)
# make sanitize              the same with AddressSanitizer and UndefinedBehaviorSanitizer in the server   (TESTS=, TAP=)
# make fuzz [FUZZ_SECONDS=60]  parsers, args, times, and calls of all functions under random input, as root   (VERSIONS=18a: test/lib/matrix.sh)
# make packages              packages built, installed, tested and upgraded, and container images, in throwaway folders, as root   (VERSIONS=, STEPS=: test/packages)
# make indent [FILES=...]    indents the C files that you have changed (test/lint/indent.sh); TYPES=1: notes new types before
# make compile_commands.json what clangd and other tools want to know
# make lint                  clang-tidy and cppcheck   (ANALYZE=1: clang's static analyzer)
# make faults [SECONDS=60]   load of every kind, while processes are killed and the server is stopped (docs/explanation/reliability.md)
# make failover [KILLS=20]   the primary killed under pg_auto_failover, then under Patroni (TOOL=: one of them), with that load (docs/how-to/failover.md)
# make shards [MOVES=25]     tenants moved between shards under load, with PL/Proxy, and servers killed meanwhile; then 1, 2 and 4 shards measured (docs/how-to/shards.md)
# make scale                 what each job takes of what all sessions share, counted in a server built for it   (SESSIONS=, WORK=: docs/benchmark/counts.md)
# make web                   the dashboard, web/queue_jobs_web
# make web-demo              see it, with a server that is thrown away afterwards   (LISTEN=127.0.0.1:8480)
# make demo                  see it work, on a server that is thrown away afterwards
# make play                  the same, with psql open in it
# make bench                 measurements (docs/benchmark)
# make dist                  archives of HEAD: for PGXN, and for Debian's dpkg-source
# make help                  this list

EXTENSION  = queue_jobs
# The version stands once, in the control file.
EXTVERSION = $(shell sed -n "s/^default_version *= *'\(.*\)'/\1/p" $(EXTENSION).control)
MODULE_big = $(EXTENSION)
# The floors of the house, each on those before it (src/README.md; test/lint/floors.pl checks it).
FLOORS = base shared process catalog guards table calls replica rules duties api executor scheduler testing
OBJS := $(patsubst %.c,%.o,$(wildcard src/*.c $(FLOORS:%=src/%/*.c)))

PG_CPPFLAGS = $(FLOORS:%=-I$(srcdir)/src/%) -I$(libpq_srcdir) -DQUEUE_JOBS_VERSION='"$(EXTVERSION)"'
# Without OpenSSL's headers all is built but for the encryption of args and results, which is refused then. Found out when PGXS has said which compiler
# and folders; HAVE_OPENSSL= (nothing) builds without them where they are there.
HAVE_OPENSSL = $(shell $(CC) $(CPPFLAGS) -include openssl/evp.h -E -x c /dev/null >/dev/null 2>&1 && echo yes)
PG_CPPFLAGS += $(if $(HAVE_OPENSSL),-DQUEUE_JOBS_OPENSSL)
SHLIB_LINK = $(libpq) $(if $(HAVE_OPENSSL),-lcrypto)
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
	src/sql/21_since_$(LAST_RELEASE).sql \
	src/sql/30_views.sql \
	src/sql/35_metric.sql \
	src/sql/40_functions.sql \
	src/sql/45_comments.sql \
	src/sql/46_internal_privileges.sql \
	src/sql/50_privileges.sql \
	src/sql/55_owner_rights.sql
EXTENSION_SCRIPT = src/sql/$(EXTENSION)--$(EXTVERSION).sql

# The update script from the last released version: columns and tables that are new, what happens to its rows, all views and functions as they are now with
# their comments, and the rights on those that are new. A function or view that stays keeps its rights, and what depends on it.
LAST_RELEASE  = 0.1.0
UPDATE_SCRIPT = src/sql/$(EXTENSION)--$(LAST_RELEASE)--$(EXTVERSION).sql
UPDATE_PARTS  = src/sql/from_$(LAST_RELEASE)/00_guard.sql src/sql/21_since_$(LAST_RELEASE).sql src/sql/from_$(LAST_RELEASE)/20_tables.sql
UPDATE_RIGHTS = src/sql/from_$(LAST_RELEASE)/50_privileges.sql src/sql/55_owner_rights.sql
REPLACED_PARTS = src/sql/30_views.sql src/sql/35_metric.sql src/sql/40_functions.sql src/sql/45_comments.sql src/sql/46_internal_privileges.sql

# The numbers of the columns that the tables have, for C.
ATTRIBUTE_NUMBERS = src/base/attribute_numbers.h
EXTRA_CLEAN       = $(ATTRIBUTE_NUMBERS)

DATA_built = $(EXTENSION_SCRIPT) $(UPDATE_SCRIPT)
# Scripts of released versions, which are fixed, and who may run them.
DATA       = $(filter-out $(DATA_built),$(wildcard src/sql/$(EXTENSION)--*.sql)) $(wildcard src/sql/$(EXTENSION)--*.control)

# Installed with the folders that they are in, for they link to each other. (PGXS's DOCS would put all into one folder, which all extensions share.)
DOC_FILES   = README.md CHANGELOG.md LICENSE $(wildcard docs/*.md docs/*/* bridge/*)
DOC_FOLDERS = $(sort $(dir $(DOC_FILES)))

REGRESS        = setup registry change_worker enqueue two_phase enqueue_many options execute fail claim steer search batch workflow long_jobs explain views comments states bad_input privileges rights history dedup dedup_updates waiting aliases quota breaker duplicates idempotent run_due record cron schedule events limits fair named_limits selectors migrate encrypt statistics metric batch_cases context bounds ddl_guard teardown
ISOLATION      = claim_claim claim_cancel cancel_running claim_complete claim_savepoints enqueue_rollback fencing steer_claim disable_worker isolation_levels change_worker rename_worker lane_creation pause_claim falls_due passed_over dedup_until_executing dedup_until_executed dedup_steered dedup_many dedup_owners key_hint run_once publish lock_record record_layers limit_slots breaker named_limits prepared explain migrate batch_end batch_levels signals signal_levels claimed_signals dedup_begun parent_ends waiting waiting_states
ISOLATION_OPTS = --inputdir=test/isolation
# The tests' output has other widths in another encoding, and UTF8 does not go with each server's own locale.
ENCODING       = UTF8
NO_LOCALE      = yes
REGRESS_PREP   = check-server
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

ifdef docdir
install: install-docs
uninstall: uninstall-docs
endif

installed_docs = $(DESTDIR)$(docdir)/$(docmoduledir)/$(EXTENSION)
# The blank line before endef ends the command.
define install_docs_of
$(MKDIR_P) '$(installed_docs)/$(1)'
$(INSTALL_DATA) $(foreach file,$(DOC_FILES),$(if $(filter $(1),$(dir $(file))),$(file))) '$(installed_docs)/$(1)'

endef

install-docs:
	$(foreach folder,$(DOC_FOLDERS),$(call install_docs_of,$(folder)))

uninstall-docs:
	rm -rf '$(installed_docs)'

# A folder outside of the installation, as an image for CloudNativePG has it.
install-tree: all
	@[ -n '$(TREE)' ] || { echo "Name the folder: make install-tree TREE=/extensions/$(EXTENSION)" >&2; exit 1; }
	$(MKDIR_P) '$(TREE)/lib' '$(TREE)/share/extension' '$(TREE)/licenses/$(EXTENSION)'
	$(INSTALL_SHLIB) $(MODULE_big).so '$(TREE)/lib'
	$(INSTALL_DATA) $(EXTENSION).control $(DATA) $(DATA_built) '$(TREE)/share/extension'
	$(INSTALL_DATA) LICENSE '$(TREE)/licenses/$(EXTENSION)'

# The version goes into the library.
$(OBJS): $(wildcard src/*/*.h) $(EXTENSION).control $(ATTRIBUTE_NUMBERS)

$(ATTRIBUTE_NUMBERS): src/base/attribute_numbers.awk $(SQL_PARTS) Makefile
	awk -f src/base/attribute_numbers.awk $(SQL_PARTS) > $@

$(EXTENSION_SCRIPT): $(SQL_PARTS) $(EXTENSION).control Makefile
	cat $(SQL_PARTS) > $@

$(UPDATE_SCRIPT): $(UPDATE_PARTS) $(REPLACED_PARTS) $(UPDATE_RIGHTS) $(EXTENSION).control Makefile
	(cat $(UPDATE_PARTS); sed -E 's/^CREATE (FUNCTION|PROCEDURE|VIEW|TRIGGER) /CREATE OR REPLACE \1 /' $(REPLACED_PARTS); cat $(UPDATE_RIGHTS)) > $@

check-server:
	@$(srcdir)/test/lib/check_server.sh '$(bindir)' '$(MAJORVERSION)' '$(EXTVERSION)' '$(if $(TAP_TESTS),$(enable_tap_tests))'

# What the clients' tests need of Debian, beside what all tests do; a line for each client.
CLIENTS_NEED = /usr/sbin/pgbouncer:pgbouncer \
	/usr/lib/python3/dist-packages/psycopg:python3-psycopg /usr/lib/python3/dist-packages/psycopg2:python3-psycopg2 /usr/lib/python3/dist-packages/sqlalchemy:python3-sqlalchemy mypy:mypy \
	node:nodejs npm:npm \
	ruby:ruby /usr/lib/ruby/vendor_ruby/pg:ruby-pg /var/lib/dpkg/info/ruby-minitest.list:ruby-minitest /var/lib/dpkg/info/ruby-activejob.list:ruby-activejob \
	/var/lib/dpkg/info/ruby-activerecord.list:ruby-activerecord /var/lib/dpkg/info/ruby-railties.list:ruby-railties
# What the dashboard and its tests need beside, installed when they run.
WEB_NEEDED = /usr/include/microhttpd.h:libmicrohttpd-dev /usr/include/gnutls/crypto.h:libgnutls28-dev
WEB_TEST_NEEDED = $(WEB_NEEDED) python3:python3 chromium:chromium chromedriver:chromium-driver
# Beside Prometheus and its exporters, which would be services if they were installed (monitoring/test/programs).
MONITORING_NEEDED = $(WEB_NEEDED) /usr/lib/python3/dist-packages/yaml:python3-yaml

# PL/Proxy, for the test that needs it, if that is among those to run; without it the test is skipped.
SHARDS_TEST = $(if $(filter tap,$(TESTS)),$(if $(TAP),$(findstring servers_shards,$(TAP)),yes))

# What the kinds of tests need beside what all do.
test: TESTS ?= regress isolation tap web clients monitoring
test:
	@$(if $(filter clients,$(TESTS)),DJANGO_PACKAGES="$$(clients/python/test/django_packages)" LATER_PYTHON="$$(clients/python/test/django_packages 6)" RAILS_PACKAGES="$$(clients/ruby/test/rails_packages)") $(if $(filter monitoring,$(TESTS)),MONITORING_PROGRAMS="$$(monitoring/test/programs)") $(if $(SHARDS_TEST),SHARDS_PROGRAMS="$$(test/shards/programs)") NEEDED='$(if $(filter clients,$(TESTS)),$(CLIENTS_NEED)) $(if $(filter web,$(TESTS)),$(WEB_TEST_NEEDED)) $(if $(filter monitoring,$(TESTS)),$(MONITORING_NEEDED))' TESTS='$(TESTS)' REGRESS='$(REGRESS)' ISOLATION='$(ISOLATION)' PG_CONFIG='$(PG_CONFIG)' TEST_POINTS=1 test/lib/sandbox.sh test/lib/run_tests.sh

quick:
	@$(MAKE) -s test TESTS='regress isolation tap' REGRESS='setup registry enqueue execute fail claim steer batch workflow teardown' \
		ISOLATION='claim_claim claim_cancel dedup_until_executing batch_end' TAP='test/t/build_source.pl test/t/build_columns.pl'

clients-test:
	@$(MAKE) -s test TESTS=clients

coverage:
	@REGRESS='$(REGRESS)' ISOLATION='$(ISOLATION)' PG_CONFIG='$(PG_CONFIG)' TEST_POINTS=1 COVERAGE=1 test/lib/sandbox.sh test/lib/coverage.sh

sanitize:
	@REGRESS='$(REGRESS)' ISOLATION='$(ISOLATION)' PG_CONFIG='$(PG_CONFIG)' SANITIZE=1 test/lib/sandbox.sh test/lib/sanitize.sh

test-matrix:
	@TESTS='$(TESTS)' REGRESS='$(REGRESS)' ISOLATION='$(ISOLATION)' PG_CONFIG='$(PG_CONFIG)' test/lib/matrix.sh

# Never this machine's own PostgreSQL.
packages:
	@VERSIONS='$(VERSIONS)' STEPS='$(STEPS)' test/packages/run.sh

faults: SECONDS = 60
faults:
	@QUEUE_JOBS_STRESS_SECONDS='$(SECONDS)' TESTS=tap TAP='test/t/fault_load.pl test/t/fault_promotion.pl test/t/fault_clocks.pl' VERBOSE=1 PG_CONFIG='$(PG_CONFIG)' \
		test/lib/sandbox.sh test/lib/run_tests.sh

# Libraries of Patroni's are installed, the programs only unpacked: installed, they would be services.
FAILOVER_NEEDED = /usr/lib/python3/dist-packages/psycopg2:python3-psycopg2 /usr/lib/python3/dist-packages/yaml:python3-yaml /usr/lib/python3/dist-packages/etcd:python3-etcd \
	/usr/lib/python3/dist-packages/click:python3-click /usr/lib/python3/dist-packages/dateutil:python3-dateutil /usr/lib/python3/dist-packages/prettytable:python3-prettytable \
	/usr/lib/python3/dist-packages/psutil:python3-psutil /usr/lib/python3/dist-packages/urllib3:python3-urllib3 /usr/lib/python3/dist-packages/cdiff.py:python3-cdiff
KILLS ?= 20
failover:
	@programs=$$(NEEDED='python3:python3 $(FAILOVER_NEEDED)' PG_CONFIG='$(PG_CONFIG)' test/failover/programs) && \
		PG_CONFIG='$(PG_CONFIG)' test/lib/sandbox.sh /usr/bin/python3 -u -B test/failover/run.py "$$programs" '$(KILLS)' $(TOOL)

MOVES ?= 25
shards:
	@programs=$$(NEEDED='python3:python3' PG_CONFIG='$(PG_CONFIG)' test/shards/programs) && \
		PG_CONFIG='$(PG_CONFIG)' test/lib/sandbox.sh /bin/sh -c '/usr/bin/python3 -u -B test/shards/run.py "$$0" $(MOVES) && /usr/bin/python3 -u -B test/shards/measure.py "$$0"' "$$programs"

# Debian's source of PostgreSQL 15 is built with counters in it, which takes some minutes the first time.
scale:
	@counting=$$(test/scale/server.sh) && COUNTING="$$counting" $(foreach name,SESSIONS WORK COUNTED,$(if $($(name)),$(name)='$($(name))')) PG_CONFIG='$(PG_CONFIG)' \
		test/lib/sandbox.sh test/scale/run.sh

web:
	@PG_CONFIG='$(PG_CONFIG)' NEEDED='$(WEB_NEEDED)' test/lib/packages.sh >/dev/null
	$(MAKE) -C web

web-demo:
	@PG_CONFIG='$(PG_CONFIG)' NEEDED='$(WEB_NEEDED)' LISTEN='$(LISTEN)' test/lib/sandbox.sh web/demo.sh

demo:
	@PG_CONFIG='$(PG_CONFIG)' test/lib/sandbox.sh test/demo/demo.sh

play:
	@PG_CONFIG='$(PG_CONFIG)' test/lib/sandbox.sh test/demo/demo.sh play

# The archives' META.json is the only place that needs the version in it: it is put in here. Debian's name has no "_" in it.
dist: release = $(EXTENSION)-$(EXTVERSION)
dist: archive = git archive --prefix=$(release)/ --add-virtual-file=$(release)/META.json:"$$(sed 's/@EXTVERSION@/$(EXTVERSION)/' META.json)"
dist:
	$(archive) --format=zip --output=$(release).zip HEAD . ':(exclude)META.json'
	$(archive) --format=tar.gz --output=$(subst _,-,$(EXTENSION))_$(EXTVERSION).orig.tar.gz HEAD . ':(exclude)META.json'

# An hour's light load of every kind; a line a minute (docs/explanation/reliability.md).
MINUTES ?= 60
RATE ?= 50
soak:
	@PG_CONFIG='$(PG_CONFIG)' test/lib/sandbox.sh test/soak/soak.sh $(MINUTES) $(RATE)

# The pure parsers under libFuzzer, each for so many seconds; then args, times and calls in a server, by default one with assertions.
FUZZ_SECONDS ?= 60
fuzz:
	@PG_CONFIG='$(PG_CONFIG)' test/fuzz/run.sh $(FUZZ_SECONDS)
	@QUEUE_JOBS_STRESS_SECONDS='$(FUZZ_SECONDS)' TESTS=tap TAP='test/t/fault_fuzzed_args.pl test/t/fault_fuzzed_calls.pl' VERBOSE=1 PG_CONFIG='$(PG_CONFIG)' \
		VERSIONS='$(or $(VERSIONS),18a)' test/lib/matrix.sh

lint:
	@PG_CONFIG='$(PG_CONFIG)' test/lint/run.sh

indent:
	@$(if $(TYPES),test/lint/indent.sh --typedefs)
	@PG_CONFIG='$(PG_CONFIG)' test/lint/indent.sh $(FILES)

# The compiler's command for each file; a quote within it is one of JSON.
compile_commands.json: Makefile
	@command=$$(printf '%s' '$(subst ','\'',$(CC) $(CFLAGS) $(CPPFLAGS))' | sed 's/["\\]/\\&/g'); separator='['; \
		for file in $(OBJS:.o=.c); do \
			printf '%s\n{"directory": "%s", "file": "%s", "command": "%s -c %s"}' "$$separator" '$(CURDIR)' "$$file" "$$command" "$$file"; separator=,; \
		done > $@; echo ']' >> $@

help:
	@sed -n 's/^# //p; /^$$/q' Makefile

.PHONY: help quick indent check-server install-docs uninstall-docs web web-demo test clients-test test-matrix coverage sanitize faults failover shards demo play dist fuzz lint soak packages install-tree scale

# Measurements, each on a server that is thrown away: docs/benchmark says what is measured.
#   make bench [FULL=1] [WORKLOADS=enqueue,…] [COMPETITORS=…] [ROUNDS=3] [DURATION=1] [CLIENTS=1,8] …
#   make bench-latency [LATENCY_JOBS=500]
#   make bench-replica [READ_JOBS=1000]
#   make bench-exactly-once [NOOPS=100000] [UPDATES=10000] [CLAIMANTS=8] [BATCH=10]
#   make bench-clients [JOBS=20000] [ROUNDS=3] [LATENCIES=200] [LANGUAGES='node python ruby'] [QUEUES=queue_jobs,…]      (each client beside queues of its language: test/bench/clients)
BENCH_PARAMETERS = FULL WORKLOADS COMPETITORS ROUNDS HELD_ROUNDS DURATION CLIENTS SCALE HOLD STEADY IDLE LOADS
bench:
	@json=$$(mktemp) && trap 'rm -f "$$json"' EXIT || exit 1; \
		NEEDED='python3:python3 gnuplot:gnuplot-nox' PG_CONFIG='$(PG_CONFIG)' \
		WISHED='node:nodejs npm:npm $(WEB_NEEDED) /usr/share/postgresql/@/extension/pgq.control:postgresql-@-pgq3' \
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

BENCH_CLIENTS_NEED = node:nodejs npm:npm redis-server:redis-server redis-cli:redis-tools rq:python3-rq \
	/usr/lib/python3/dist-packages/celery:python3-celery /usr/lib/python3/dist-packages/psycopg:python3-psycopg \
	ruby:ruby sidekiq:ruby-sidekiq /usr/lib/ruby/vendor_ruby/pg.rb:ruby-pg
bench-clients:
	@PG_CONFIG='$(PG_CONFIG)' NEEDED='$(BENCH_CLIENTS_NEED)' test/lib/sandbox.sh test/bench/clients/run.sh

.PHONY: bench bench-latency bench-exactly-once bench-replica bench-clients
