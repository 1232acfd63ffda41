# Fuzzed calls. All functions and procedures of the extension, as the catalog lists them, are called with odd and fitting values by roles of different rights, and by
# sessions in every state: at once, in transactions of each isolation level with savepoints, in cursors (held ones run at the commit), DO blocks, triggers (deferred ones
# run at the commit), procedures that commit, handlers of jobs, and within assert_idempotent(). No call is an internal error, leaves something behind that the server warns of,
# takes a process down, or goes on beyond its statement_timeout; and jobs run afterwards.
#
# QUEUE_JOBS_STRESS_SECONDS makes it go on for longer than two rounds; QUEUE_JOBS_FUZZ_SEED repeats the calls of a run, though not how they meet.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $end = time + ($ENV{QUEUE_JOBS_STRESS_SECONDS} || 0);
my $seed = $ENV{QUEUE_JOBS_FUZZ_SEED} || int(time);
srand($seed);
note("QUEUE_JOBS_FUZZ_SEED=$seed");

my $node = new_node('fuzzed_calls', conf => <<'CONF');
queue_jobs.max_executors = 3
queue_jobs.max_dead_jobs = 100
log_error_verbosity = verbose
max_wal_size = 4GB
CONF
my $postgres = $node->connstr('postgres');

sub one_of { return $_[ rand @_ ]; }
sub literal { my ($text) = @_; $text =~ s/'/''/g; return "'$text'"; }
sub dollars { my ($text) = @_; my $tag = 'f' . int rand 1e9; return "\$$tag\$$text\$$tag\$"; }

# ---- the stage ----

my %rights = (fuzz_super => 'SUPERUSER', fuzz_all => 'enqueue, claim, define, operate, read', fuzz_define => 'define', fuzz_enqueue => 'enqueue',
	fuzz_claim => 'claim, enqueue', fuzz_operate => 'operate, read', fuzz_none => '');
foreach my $role (sort keys %rights)
{
	my $super = $rights{$role} eq 'SUPERUSER';
	$node->safe_psql('postgres', "CREATE ROLE $role LOGIN " . ($super ? 'SUPERUSER' : 'NOSUPERUSER'));
	next if $super || $rights{$role} eq '';
	$node->safe_psql('postgres', 'GRANT ' . ($rights{$role} =~ s/(\w+)/queue_jobs_$1/gr) . " TO $role");
}
$node->safe_psql('postgres', <<'SQL');
GRANT fuzz_define TO fuzz_operate;
CREATE SCHEMA fuzz;
GRANT USAGE, CREATE ON SCHEMA fuzz TO PUBLIC;
SET search_path = fuzz;
CREATE FUNCTION any_job() RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER AS
	$$SELECT coalesce((SELECT id FROM queue_jobs.live_job TABLESAMPLE SYSTEM (20) ORDER BY random() LIMIT 1), (random() * 50)::bigint)$$;
CREATE FUNCTION any_claimed() RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER AS
	$$SELECT coalesce((SELECT id FROM queue_jobs.live_job WHERE claimant IS NOT NULL ORDER BY random() LIMIT 1), (random() * 50)::bigint)$$;
CREATE FUNCTION any_batch() RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER AS
	$$SELECT coalesce((SELECT id FROM queue_jobs.tracked_batch ORDER BY random() LIMIT 1), (random() * 50)::bigint)$$;
-- What is called stands in the args, so that the same calls are made in the state that a handler is in.
CREATE FUNCTION calls(args jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	call text;
BEGIN
	FOR call IN SELECT jsonb_array_elements_text(args -> 'calls') LOOP
		EXECUTE call;
	END LOOP;
	RETURN '1';
END$$;
CREATE FUNCTION catches(calls jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	call text;
BEGIN
	FOR call IN SELECT jsonb_array_elements_text(calls) LOOP
		BEGIN
			EXECUTE call;
		EXCEPTION WHEN OTHERS THEN
			NULL;
		END;
	END LOOP;
END$$;
CREATE PROCEDURE commits(args jsonb) LANGUAGE plpgsql AS $$
DECLARE
	call text;
BEGIN
	FOR call IN SELECT jsonb_array_elements_text(args -> 'calls') LOOP
		EXECUTE call;
		IF random() < 0.7 THEN COMMIT; ELSE ROLLBACK; END IF;
	END LOOP;
END$$;
CREATE FUNCTION fails(n int DEFAULT 0) RETURNS int LANGUAGE sql AS $$SELECT 1 / n$$;
CREATE FUNCTION nothing(args jsonb) RETURNS void LANGUAGE sql AS $$$$;
CREATE FUNCTION reads(args jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$SELECT args$$;
CREATE FUNCTION reads_by_calls(args jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN RETURN fuzz.calls(args); END$$;
CREATE FUNCTION writes_what_was_read(args jsonb, read jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$BEGIN RETURN fuzz.calls(args) || read; END$$;
CREATE FUNCTION backoff(attempt int) RETURNS interval LANGUAGE sql AS $$SELECT make_interval(secs => attempt)$$;
CREATE PROCEDURE long(cursor jsonb DEFAULT NULL, results jsonb DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 3 LOOP
		CALL queue_jobs.checkpoint(to_jsonb(i), i);
	END LOOP;
END$$;
CREATE TABLE record (id int PRIMARY KEY, state text);
INSERT INTO record SELECT g, 'new' FROM generate_series(1, 10) g;
CREATE TABLE immediate (call text);
CREATE TABLE deferred (call text);
CREATE FUNCTION calls_new() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN EXECUTE NEW.call; RETURN NEW; END$$;
CREATE TRIGGER calls BEFORE INSERT ON immediate FOR EACH ROW EXECUTE FUNCTION calls_new();
CREATE CONSTRAINT TRIGGER calls AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION calls_new();
GRANT ALL ON ALL TABLES IN SCHEMA fuzz TO PUBLIC;
SELECT queue_jobs.define_worker('claimed', idempotent => true);
SELECT queue_jobs.define_worker('limited', concurrency_key => 'k', concurrency_limit => 1);
SELECT queue_jobs.define_worker(name, 'fuzz.' || name, timeout => '1 s', max_retries => 1, idempotent => name IN ('nothing', 'calls'), run_as => CASE name WHEN 'catches' THEN 'definer' ELSE 'invoker' END)
  FROM unnest('{calls,catches,commits,fails,nothing,long}'::text[]) name;
SELECT queue_jobs.define_worker('waits', 'fuzz.calls', idempotent => true, if_waiting => 'debounce', max_delay => '1 s', dedup_args => '{k}', timeout => '1 s', aliases => '{waited}');
SELECT queue_jobs.define_worker('newest', 'fuzz.calls', idempotent => true, deduplicate => 'until_executed', if_deduplicated => 'cancel_running', dedup_args => '{k}', timeout => '1 s');
SELECT queue_jobs.define_worker('reading', 'fuzz.writes_what_was_read', read_handler => 'fuzz.reads_by_calls', data_consistency => 'delayed', timeout => '1 s', max_retries => 1);
SELECT queue_jobs.subscribe(event, worker) FROM unnest('{placed,order.*,*}'::text[], '{calls,waits,claimed}'::text[]) s (event, worker);
SQL

# ---- values ----

my @workers = qw(claimed limited calls catches commits fails nothing long waits newest reading new);
my @texts = ("''", "'x'", "'*'", q{'it''s "q"'}, "repeat('long', 100)", "'a' || chr(228) || chr(128512)", "'a:b'", "'cronjob:*'", "E'a\\nb'");
my @intervals = map { "'$_'" } '0', '1 s', '10 ms', '1 day', '-1 s', '365 days', '366 days', '178000000 years', '-178000000 years', '1 mon -30 days', '0.000001 s', '2147483647 mons 2147483647 days';
my @numbers = (0, 1, 2, 3, -1, 100, 2147483647, -2147483648);
my @json = map { literal($_) } 'null', '{}', '[]', '1', '"x"', '{"k": 1}', '{"k": "1", "n": 0}', '{"a": {"b": [1, {"c": null}]}}', '{"calls": []}', '{"calls": ["SELECT 1"]}', '[1, 2]',
  '{"k": "' . 'x' x 3000 . '"}';
my @jobs = ('fuzz.any_job()', 'fuzz.any_job()', 'fuzz.any_claimed()', 0, -1, '9223372036854775807', 1);
my @batches = ('fuzz.any_batch()', 'fuzz.any_batch()', 0, -1, '9223372036854775807');
my @commands = map { literal($_) } 'SELECT 1', 'SELECT $1', 'SELECT $1, 2', 'COMMIT', 'SELECT 1/0', '', 'no SQL', 'INSERT INTO fuzz.record VALUES (11)', 'SELECT pg_sleep(10)', 'VACUUM', 'SELECT 1; SELECT 2';
my @handlers = map { "'fuzz.$_'" } qw(calls catches commits fails nothing long reads backoff none calls(jsonb));
my @cron = map { "'$_'" } '* * * * *', '*/1 * * * * *', 'every 1 second', '@hourly', '@reboot', '', '0 0 30 2 *', 'every -1 seconds', '99 * * * *', '1-0 * * * *', 'every 9999999999999999999 days';
my @steps = map { literal($_) } '[{"step": "a", "worker": "nothing"}, {"step": "b", "worker": "fails", "after": ["a"]}, {"step": "c", "worker": "claimed", "after": ["a", "b"], "if_dead": "run"}]',
  '[{"step": "a", "worker": "long", "args": {"x": 1}, "delay": "1 ms"}, {"step": "b", "worker": "nothing", "after": ["a"], "if_dead": "cancel", "priority": 3, "queue": "q"}]',
  '[{"step": "a", "worker": "nothing", "after": ["a"]}]', '[{}]', '[1]', '{"step": "a"}', '[{"step": "a", "worker": "nothing"}, {"step": "a", "worker": "nothing"}]', '[]',
  '[{"step": "a", "worker": "none"}]', '[{"step": null, "worker": null}]', '[{"step": "a", "worker": "nothing", "delay": "-1 s"}]', '[{"step": "a", "worker": "nothing", "priority": 1e30}]';
my @rules = map { literal($_) } '[]', '[["urgency=high", "fast"], ["*", ""]]', '[["*", "q"]]', '[["a=b=c", ""]]', '[[]]', '[1]', '{}', '[["tags=a|", "q"]]';
my @states = map { "'$_'" } '{}', '{dead}', '{available,scheduled}', '{executing,retryable,waiting}', '{none}', '{NULL}', '{completed,cancelled,dead}', '{{dead},{dead}}';

# By the parameter's name, whatever the function.
my %named = (
	worker => [ map { "'$_'" } @workers, 'none', '' ], name => [ map { "'$_'" } @workers, 'go', 'flag', 'replica', 's', 'none', '' ],
	on_success => [ map { "'$_'" } qw(nothing fails claimed none) ], queue => [ map { "'$_'" } @workers, 'q', 'a:b', '', '*' ], handler => \@handlers, read_handler => \@handlers,
	id => [ @jobs, @batches ], job => \@jobs, batch => \@batches, parent => \@batches, attempt => [ 0, 1, 1, 1, 2, -1, 2147483647 ], steps => \@steps, rules => \@rules, command => \@commands, cron => \@cron,
	timezone => [ map { "'$_'" } 'UTC', 'Europe/Berlin', 'none', '', 'UTC+3', 'posix/UTC' ], states => \@states, '"table"' => [ map { "'$_'" } 'fuzz.record', 'pg_class', 'queue_jobs.job', 'fuzz.deferred' ],
	key => [ "'1'", "'99'", '1', "'x'", "'{\"id\": 1}'" ], condition => [ map { literal($_) } q{state = 'new'}, 'true', 'record.id = 1', 'no', '', '1', 'fuzz.nothing(NULL) IS NULL' ],
	claimant => [ "'me'", "'me'", "'you'", "''" ], conninfo => [ literal($postgres), "'host=/none'", "'no'", "''", "'port=0'" ], if_dead => [ map { "'$_'" } qw(hold cancel run none) ],
	if_running => [ map { "'$_'" } qw(skip queue none) ], catch_up => [ map { "'$_'" } qw(skip once all none) ], urgency => [ map { "'$_'" } qw(high low throttled none) ],
	run_as => [ "'invoker'", "'definer'", "'none'" ], deduplicate => [ map { "'$_'" } qw(until_executing until_executed none other) ], if_deduplicated => [ "'drop'", "'reschedule_once'", "'cancel_running'", "'none'" ],
	data_consistency => [ map { "'$_'" } qw(always sticky delayed none) ], record => [ "'fuzz.record'", "'none'" ], record_key => [ "'id'", "'none'" ], pending => [ q{'state = ''new'''}, "'no'" ],
	retry_backoff => [ "'fuzz.backoff'", "'none'" ], concurrency_key => [ "'k'", "''" ], dedup_key => [ "'d'", "'e'", "''" ], times => [ 2, 3, 1, -1, 1000, 1001 ], batch_size => [ 1, 2, 0, -1, 2147483647 ]);
my @changes = ("'drop'", "'replace'", "'replace'", "'replace_args'", "'debounce'", "'debounce'", "'none'");
%named = (%named, if_waiting => \@changes, max_delay => [ map { "'$_'" } '1 s', '20 ms', '1 day', '0', '-1 s' ], delay => [ map { "'$_'" } '20 ms', '20 ms', '1 s', '0', '1 day', '-1 s' ],
	event => [ map { "'$_'" } qw(placed order.placed order.paid order.* * other. .*), '' ], filter => [ map { literal($_) } '{"k": 1}', '{}', 'null', '[]' ], jitter => [ map { "'$_'" } '0', '1 ms', '1 s', '366 days' ],
	aliase => [ map { "'$_'" } qw(waited old new claimed none), '' ], dedup_arg => [ "'k'", "'n'", "''" ], reset => [ map { "'$_'" } qw(aliases queue timeout if_waiting dedup_args name none) ],
	expect => [ map { literal($_) } 'SELECT 1', 'TABLE fuzz.record', 'SELECT random()', 'no', '', 'SELECT 1/0' ], now => [ map { "'$_'" } 'now', 'tomorrow', 'epoch', 'infinity' ], max_jobs => [ 1, 2, 0, 100, -1 ],
	since => [ map { "'$_'" } 'yesterday', 'now', '-infinity' ], until => [ map { "'$_'" } 'now', 'tomorrow', 'infinity' ]);
$named{on_ended} = $named{on_dead} = $named{on_success};
$named{from} = $named{to} = $named{queue};

my %typed = (
	text => \@texts, name => \@texts, bigint => [ @numbers, @jobs ], integer => \@numbers, smallint => [ 0, 1, -32768 ], boolean => [ 'true', 'false' ], interval => \@intervals, jsonb => \@json,
	'timestamp with time zone' => [ map { "'$_'" } 'now', 'tomorrow', 'infinity', '-infinity', 'epoch', '294276-12-31', '4713-01-01 BC' ],
	'double precision' => [ map { "'$_'" } '0', '0.5', '-1', 'NaN', 'Infinity', '1e308', '1e-320' ], real => [ "'0'", "'NaN'" ], numeric => [ "'0'", "'NaN'", "'1e300'" ], pg_lsn => [ "'0/0'", "'0/1'", "'FFFFFFFF/FFFFFFFF'", 'pg_current_wal_lsn()' ],
	regclass => [ "'fuzz.record'", "'pg_class'", '0', '4294967295' ], oid => [ 0, 10, '4294967295', "'fuzz.record'::regclass" ], regprocedure => [ 0, "'fuzz.nothing(jsonb)'" ], tid => [ "'(0,1)'", "'(0,0)'", "'(4294967295,65535)'" ],
	anyelement => [ '1::integer', "'x'::text", 'NULL::integer', "'{}'::jsonb", "ROW(1, 'x')", "'{1}'::integer[]" ], '"char"' => [ "'a'" ], uuid => [ 'gen_random_uuid()' ], bytea => [ "'\\x'", "'\\xdeadbeef'" ]);

sub value
{
	my ($name, $type) = @_;

	return "NULL::$type" if $type ne 'anyelement' && rand() < 0.07;
	return one_of(@{ $typed{anyelement} }) if $type eq 'anyelement';
	if ($type =~ /^(.*)\[\]$/)
	{
		my $element = $1;
		return "'{}'::$type" if rand() < 0.1;
		return one_of("'{*}'", "'{claimed,limited}'", "'{urgency=low}'", "'{a=b=c}'", "'{NULL}'", "'{{claimed}}'", "'[0:0]={claimed}'") . "::$type" if $name eq 'queues';
		return one_of(@states) . "::$type" if $name eq 'states';
		return 'ARRAY[' . join(', ', map { value($name =~ s/s$//r =~ s/^after$/job/r, $element) } 1 .. 1 + rand 3) . "]::$type";
	}
	my $known = $named{$name};
	my $values = $known && rand() < 0.85 ? $known : $typed{$type};
	# a type that is not known here: what it makes of no value
	return $values ? '(' . one_of(@$values) . ")::$type" : "NULL::$type";
}

# ---- calls ----

# Of each function: how it is called, and its parameters as [ name, type, has a default ].
my @functions;
foreach my $line (split /\n/, $node->safe_psql('postgres', <<'SQL'))
SELECT p.prokind, p.oid::regproc,
       string_agg(coalesce(quote_ident(a.name), '') || '|' || format_type(a.type, NULL) || '|' || (a.n > p.pronargs - p.pronargdefaults)::int, ';' ORDER BY a.n)
  FROM pg_proc p LEFT JOIN LATERAL (
       SELECT row_number() OVER (ORDER BY u.ordinality) AS n, u.name, u.type
         FROM unnest(coalesce(p.proallargtypes, p.proargtypes::oid[]), p.proargnames, p.proargmodes) WITH ORDINALITY u(type, name, mode)
        WHERE u.type IS NOT NULL AND coalesce(u.mode, 'i') IN ('i', 'b', 'v')) a ON true
 WHERE p.pronamespace IN ('queue_jobs'::regnamespace, 'queue_jobs_internal'::regnamespace) AND p.prokind IN ('f', 'p') AND p.prorettype <> 'trigger'::regtype AND NOT 'internal'::regtype = ANY (p.proargtypes)
 GROUP BY p.oid ORDER BY p.oid::regprocedure::text
SQL
{
	my ($kind, $name, $parameters) = split /\|/, $line, 3;
	push @functions, { procedure => $kind eq 'p', name => $name, parameters => [ map { [ split /\|/ ] } split /;/, $parameters // '' ] };
}
cmp_ok(scalar @functions, '>', 80, 'there are functions to be called');
# those that begin something, without which the others have nothing to do
my @makers = grep { $_->{name} =~ /^queue_jobs\.(enqueue|enqueue_many|enqueue_workflow|try_enqueue|new_batch|claim|schedule|define_worker)$/ } @functions;
# those that belong into a handler
my @of_runs = grep { $_->{name} =~ /^queue_jobs\.(current_job|retry_in|snooze_me|continue_at|checkpoint|step|report|current_batch|signal_payload|wait_for_signal|cancel|discard|signal|assert_idempotent|run_once)$/ } @functions;
my %called;

sub call_of
{
	my ($function) = @_;
	my @arguments;

	$called{ $function->{name} }++;
	foreach my $parameter (@{ $function->{parameters} })
	{
		my ($name, $type, $default) = @$parameter;
		next if $default && rand() < ($function->{name} =~ /define_worker/ ? 0.85 : 0.6);
		push @arguments, ($name ne '' ? "$name => " : '') . value($name, $type);
	}
	return "$function->{name}(" . join(', ', @arguments) . ')';
}

# All in turn, in a random order.
my @next;
sub next_function
{
	@next = map { $_->[0] } sort { $a->[1] <=> $b->[1] } map { [ $_, rand ] } @functions unless @next;
	return shift @next;
}

sub statement
{
	my (@from) = @_;
	my $function = @from ? one_of(@from) : rand() < 0.3 ? one_of(@makers) : next_function();
	my $call = call_of($function);

	return "CALL $call" if $function->{procedure};
	return one_of("SELECT $call", "SELECT $call", "SELECT * FROM $call", "SELECT count(*) FROM generate_series(1, 3), LATERAL $call c");
}

sub query
{
	my $query;
	do { $query = statement() } until $query =~ /^SELECT/;
	return $query;
}

sub some { my ($make) = @_; return map { $make->() } 1 .. 1 + rand 4; }
sub json_of { my $list = join ', ', map { '"' . s/\\/\\\\/gr =~ s/"/\\"/gr =~ s/\n/ /gr . '"' } @_; return "[$list]"; }
# In a handler.
sub run_statements { return some(sub { rand() < 0.6 ? statement(@of_runs) : statement() }); }

# ---- states ----

sub isolation { return one_of('', '', ' ISOLATION LEVEL REPEATABLE READ', ' ISOLATION LEVEL SERIALIZABLE', ' READ ONLY', ' ISOLATION LEVEL SERIALIZABLE READ ONLY'); }
my $prepared = 0;
sub ending { return one_of('COMMIT', 'COMMIT', 'COMMIT', 'ROLLBACK', 'COMMIT AND CHAIN; ROLLBACK', "PREPARE TRANSACTION 'fuzz " . ++$prepared . "'"); }

my @ways = (
	sub { return statement(); },
	sub {
		my @sql = 'BEGIN' . isolation();
		push @sql, one_of(\&statement, \&statement, \&statement, sub { 'SAVEPOINT s' }, sub { 'ROLLBACK TO s' }, sub { 'RELEASE s' })->() foreach 1 .. 2 + rand 6;
		return (one_of(q{\set ON_ERROR_ROLLBACK on}, q{\set ON_ERROR_ROLLBACK on}, '\\set ON_ERROR_ROLLBACK off'), @sql, ending(), '\\set ON_ERROR_ROLLBACK off');
	},
	sub {
		my $hold = one_of('', ' WITH HOLD');
		return ('BEGIN' . isolation(), one_of('SAVEPOINT s', 'SELECT 1'), 'DECLARE c ' . one_of('', 'SCROLL') . " CURSOR$hold FOR " . query(), one_of('FETCH c', 'FETCH ALL c', 'MOVE c', 'SELECT 1'),
			one_of('ROLLBACK TO s', 'FETCH c', 'CLOSE c', statement()), ending(), 'FETCH c', 'CLOSE c');
	},
	sub { return 'DO ' . dollars('BEGIN ' . join(' ', map { s/^SELECT /PERFORM /r . ';' } some(\&statement)) . one_of('', ' EXCEPTION WHEN OTHERS THEN ' . query() =~ s/^SELECT /PERFORM /r . ';') . ' END'); },
	sub { return 'DO ' . dollars('DECLARE c refcursor; r record; BEGIN FOR r IN ' . query() . ' LOOP BEGIN ' . query() =~ s/^SELECT /PERFORM /r . one_of('', '; RAISE division_by_zero') . '; EXCEPTION WHEN division_by_zero THEN NULL; END; '
		. one_of('', 'COMMIT; ', 'ROLLBACK; ') . 'END LOOP; END'); },
	sub { return 'INSERT INTO fuzz.' . one_of('immediate', 'deferred') . ' VALUES ' . join(', ', map { '(' . literal($_) . ')' } some(\&statement)); },
	sub {
		return ('BEGIN' . isolation(), map({ 'INSERT INTO fuzz.deferred VALUES (' . literal($_) . ')' } some(\&statement)), one_of('SET CONSTRAINTS ALL IMMEDIATE', 'SAVEPOINT s', statement()), ending());
	},
	sub { return 'CALL fuzz.commits(' . literal('{"calls": ' . json_of(some(\&statement)) . '}') . ')'; },
	sub { my $worker = one_of('calls', 'commits', 'catches', 'waits', 'newest', 'reading'); return "SELECT queue_jobs.enqueue('$worker', " . literal('{"calls": ' . json_of(run_statements()) . '}') . ')'; },
	sub { my $worker = one_of('calls', 'commits', 'catches'); return "SELECT queue_jobs.assert_idempotent('$worker', " . literal('{"calls": ' . json_of(run_statements()) . '}') . ')'; },
	sub {
		my ($due) = grep { $_->{name} eq 'queue_jobs.run_due' } @functions;
		my @sql = ('BEGIN' . isolation(), some(\&statement), some(sub { "SELECT queue_jobs.enqueue('" . one_of('calls', 'catches', 'waits', 'newest', 'reading') . "', " . literal('{"calls": ' . json_of(run_statements()) . '}') . ')' }));
		return ('\\set ON_ERROR_ROLLBACK on', @sql, 'SAVEPOINT s', one_of('SELECT queue_jobs.run_due()', 'SELECT ' . call_of($due)), one_of('ROLLBACK TO s', statement()), 'SELECT ' . call_of($due), ending(), '\\set ON_ERROR_ROLLBACK off');
	},
	sub { return 'EXPLAIN (ANALYZE) ' . query(); },
	sub { return 'COPY (' . query() . ') TO STDOUT'; },
	sub { return 'CREATE TEMP TABLE made AS ' . query(), 'DROP TABLE IF EXISTS pg_temp.made'; },
	sub { return ('PREPARE p AS ' . query(), 'EXECUTE p', 'EXECUTE p', 'DEALLOCATE p'); },
	sub { my @two = (query(), query()); return "$two[0]\\; $two[1]"; },
	sub { return ('SET ROLE ' . one_of(sort keys %rights), statement(), statement(), 'RESET ROLE'); },
	sub { return ("SET default_transaction_isolation = '" . one_of('serializable', 'repeatable read', 'read committed') . "'", statement(), statement(), 'RESET default_transaction_isolation'); },
	sub { return 'SELECT ' . join(', ', map { s/^SELECT (?!\*|count)//r } grep { /^SELECT (?!\*|count)/ } map { query() } 1 .. 4) || 'SELECT 1'; },
	sub { return 'TABLE queue_jobs.' . one_of(qw(job worker queue schedule batch batch_member workflow_step worker_statistics metric capacity replica running_job misdeclared_worker routing_rule event_subscription)); });

sub script
{
	my $sql = "SET statement_timeout = '500ms';\nSET client_min_messages = error;\n";

	foreach (1 .. 60)
	{
		$sql .= ($_ =~ /^\\/ ? "$_\n" : "$_;\n") foreach one_of(@ways)->();
	}
	return "$sql\nROLLBACK;\n";
}

# ---- rounds ----

# What the server's log must not have. Warnings are of what a transaction has left behind.
my $wrong = qr/TRAP|was terminated by signal|PANIC:|(?:ERROR|FATAL):\s+XX\d\w\d:|\bleak|still referenced|don't own a lock|while in \w+ state|not in a transaction|bogus|corrupt/;
my $read = 0;
sub wrong_lines
{
	my $log = slurp_file($node->logfile, $read);
	$read += length $log;
	my @lines = split /\n/, $log;
	my @found = map { join "\n", @lines[ $_ .. ($_ + 12 > $#lines ? $#lines : $_ + 12) ] } grep { $lines[$_] =~ $wrong } 0 .. $#lines;
	return join "\n---\n", @found > 5 ? @found[ 0 .. 4 ] : @found;
}

# What keeps jobs from running is taken back; then a job of a worker that no call knows runs.
sub settle
{
	$node->psql('postgres', "ROLLBACK PREPARED '$_'") foreach split /\n/, $node->safe_psql('postgres', 'SELECT gid FROM pg_prepared_xacts');
	$node->psql('postgres', $_) foreach 'SELECT queue_jobs.unschedule(name) FROM queue_jobs.schedule', 'SELECT queue_jobs.drop_replica(name) FROM queue_jobs.replica',
	  "SELECT queue_jobs.set_routing('[]')", "SELECT queue_jobs.cancel_batch(id) FROM queue_jobs.batch WHERE state <> 'succeeded'",
	  q{SELECT queue_jobs.cancel(id) FROM queue_jobs.job WHERE state NOT IN ('completed', 'cancelled', 'dead')}, q{SELECT queue_jobs.define_worker('probe', 'fuzz.nothing')},
	  q{SELECT queue_jobs.resume('probe'), queue_jobs.enable_worker('probe')};
	my $sent = $node->safe_psql('postgres', q{SELECT max(id) FROM queue_jobs.job});
	wait_until($node, qq{SELECT EXISTS (SELECT FROM queue_jobs.job WHERE worker = 'probe' AND state = 'completed' AND id > coalesce(nullif('$sent', '')::bigint, 0))},
		meanwhile => sub { $node->psql('postgres', q{SELECT queue_jobs.enqueue('probe')}) });
	return;
}

my ($rounds, $calls, $found, $hung) = (0, 0, '', '');
do
{
	my @sessions;
	# two who may do much, and two of the others
	my @others = map { $_->[0] } sort { $a->[1] <=> $b->[1] } map { [ $_, rand ] } grep { $_ !~ /super|all/ } sort keys %rights;
	foreach my $role ('fuzz_super', 'fuzz_all', @others[ 0, 1 ])
	{
		my %session = (role => $role, script => script(), out => '', err => '');
		$session{psql} = IPC::Run::start([ $node->installed_command('psql'), '-XAtq', '-d', "$postgres user=$session{role}" ], '<', \$session{script}, '>', '/dev/null', '2>', \$session{err},
			IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
		push @sessions, \%session;
	}
	foreach my $session (@sessions)
	{
		next if eval { $session->{psql}->finish; 1 };
		$hung .= "$session->{role}: $@\n";
		$session->{psql}->kill_kill;
	}
	$hung .= $node->safe_psql('postgres', q{SELECT usename, state, wait_event, left(query, 500) FROM pg_stat_activity WHERE usename LIKE 'fuzz%' AND backend_type = 'client backend'}) if $hung ne '';
	$found = wrong_lines();
	if ($hung eq '' && $found eq '')
	{
		settle();
		$found = wrong_lines();
	}
	$rounds++;
} while ((time < $end || $rounds < 2) && $hung eq '' && $found eq '');

is($hung, '', 'each call ends, or is ended by its timeout');
is($found, '', 'no call is an internal error, leaves anything behind, or takes a process down');
is(join(' ', grep { !$called{$_} } map { $_->{name} } @functions), '', 'each function has been called') if $hung eq '' && $found eq '';
$calls += $_ foreach values %called;
note("$rounds rounds, $calls calls");
# one that has gone down cannot be stopped, which would end the tests of all files
$node->stop if $hung eq '' && $found eq '';
done_testing();
