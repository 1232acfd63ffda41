# Fuzzed values. Args become a handler's parameters as plain SQL would convert them: for handlers with random parameters and args
# that are random, mutated or odd, either both give the same value or both the same error. Times given to enqueue() are kept
# exactly, or refused before anything is written. No value is an internal error, or takes a process down.
#
# QUEUE_JOBS_STRESS_SECONDS makes it go on for longer than one round; QUEUE_JOBS_FUZZ_SEED repeats a run.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $end = time + ($ENV{QUEUE_JOBS_STRESS_SECONDS} || 0);
my $seed = $ENV{QUEUE_JOBS_FUZZ_SEED} || int(time);
srand($seed);
note("QUEUE_JOBS_FUZZ_SEED=$seed");

my $node = new_node('fuzzed_args', conf => "queue_jobs.max_executors = 2");

sub one_of { return $_[ rand @_ ]; }

# One of the first rather than of the last.
sub likely_of { return $_[ @_ * rand()**3 ]; }

# As a string constant; as an identifier.
sub literal { my ($text) = @_; $text =~ s/'/''/g; return "'$text'"; }
sub identifier { my ($name) = @_; $name =~ s/"/""/g; return "\"$name\""; }

# ---- what handlers take ----

# A type: how its value comes out of one key by plain SQL ($1: the args, $2: the key), a default, and JSON that may fit.
my @integers = ('0', '-1', '42', '"7"', '2147483647', '2147483648', '-2147483649', '32768', '9223372036854775808', '1.5', '1e2', '" 12 "', '"0x1F"', '"1_0"');
my @numbers = (@integers, '1e400', '-1e-400', '"NaN"', '"-Infinity"', '"1e5"', '0.1', '123456789.123456789123456789', '"."', '1e1000');
my @texts = ('"x"', '""', '"it\'s"', '"\\u00fc\\ud83d\\ude00"', '"a\\nb\\t\\"\\\\"', '"' . 'long ' x 50 . '"', '"{1,2}"', '"(1,x)"', '"null"', '" "');
my @times = ('"2024-02-29 12:00+02"', '"infinity"', '"-infinity"', '"294276-12-31"', '"294277-01-01"', '"4713-01-01 BC"', '"4714-01-01 BC"', '"epoch"',
	'"2024-02-30"', '"24:00"', '"2024-06-30 23:59:60"', '"2024-03-31 02:30 Europe/Berlin"', '"20240101T010101Z"', '"1 Jan 1"', '1700000000', '"99999-99-99"');
my @intervals = ('"1 day"', '"-1 mon 3 h"', '"P1Y2M3DT4H5M6.7S"', '"178000000 years"', '"178000001 years"', '"1.5 weeks"', '"@ 1 ago"', '90', '"1:2:3.4567891"', '"infinity"');
my @arrays = ('[]', '[1,2,3]', '[[1,2],[3,4]]', '[[1],[2,3]]', '[1,"2",null]', '["a","b\\"c"]', '"{1,2}"', '"{1,{2}}"', '[[],[]]', '"[0:1]={5,6}"', '{"0": 1}', '[1.5]');
my @rows = ('{"n": 1, "t": "x"}', '{"t": "only"}', '{}', '{"n": "no"}', '"(1,x)"', '"(1"', '[{"n": 1}]', '{"n": 1, "t": null, "more": {"a": []}}', '{"n": [1]}', '[]');
# TYPE and N are replaced by the type and its number below
my $scalar = '($1 ->> $2)::TYPE';
my $populated = q{(jsonb_populate_record(NULL::only_N, jsonb_build_object('v', $1 -> $2))).v};
my @types = (
	[ 'integer', $scalar, '42', \@integers ], [ 'smallint', $scalar, '-1', \@integers ], [ 'bigint', $scalar, 'NULL', \@integers ],
	[ 'numeric', $scalar, '1.50', \@numbers ], [ 'double precision', $scalar, '0', \@numbers ], [ 'real', $scalar, '0', \@numbers ],
	[ 'text', $scalar, q{'d'}, \@texts ], [ 'name', $scalar, q{'d'}, \@texts ], [ '"char"', $scalar, q{'d'}, \@texts ],
	[ 'boolean', $scalar, 'true', [ 'true', 'false', '"t"', '"off"', '"maybe"', '1', '0', '2', '"yes "' ] ],
	[ 'timestamptz', $scalar, q{'epoch'}, \@times ], [ 'timestamp', $scalar, 'NULL', \@times ], [ 'date', $scalar, 'NULL', \@times ],
	[ 'time', $scalar, 'NULL', \@times ], [ 'interval', $scalar, q{'1 day'}, \@intervals ],
	[ 'uuid', $scalar, 'NULL', [ '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"', '"{a0eebc999c0b4ef8bb6d6bb9bd380a11}"', '"a0ee"' ] ],
	[ 'bytea', $scalar, 'NULL', [ '"\\\\xdeadbeef"', '"\\\\xdea"', '"a\\\\000b"', '"a\\\\b"', '""' ] ],
	[ 'inet', $scalar, 'NULL', [ '"10.0.0.1/8"', '"::1"', '"1.2.3"', '"::ffff:1.2.3.4/129"' ] ],
	[ 'int4range', $scalar, 'NULL', [ '"[1,5)"', '"empty"', '"[5,1)"', '"(,)"', '"[2147483647,2147483647]"' ] ],
	[ 'point', $scalar, 'NULL', [ '"(1,2)"', '"1,NaN"', '[1,2]' ] ],
	[ 'mood', $scalar, q{'so so'}, [ '"sad"', '"so so"', '"SAD"', '""', '1' ] ],
	[ 'positive', $scalar, '1', \@integers ], [ 'given', $scalar, q{'d'}, \@texts ],
	[ 'jsonb', '$1 -> $2', q{'[]'}, [ @arrays, @rows ] ], [ 'json', '($1 -> $2)::TYPE', q{'[]'}, [ @arrays, @rows ] ],
	[ 'integer[]', $populated, q{'{1}'}, \@arrays ], [ 'text[]', $populated, 'NULL', \@arrays ], [ 'jsonb[]', $populated, 'NULL', [ @arrays, @rows ] ],
	[ 'positive[]', $populated, 'NULL', \@arrays ], [ 'pair', $populated, 'NULL', \@rows ], [ 'pair[]', $populated, 'NULL', [ @rows, '[{"n": 1}, {"t": "x"}, null]' ] ],
	[ 'known_pair', $populated, q{'(1,x)'}, \@rows ]);
my @any = map { @{ $_->[3] } } @types;
my @names = ('a', 'select', 'A b', 'ünï', 'q"q', "it's", '%s', 'x.y', 'a$1', ' ', 'n' x 63, 'r', 'args', 'read', 'jsonb_to_record', '日本', 'null', '--', 'b', 'c', '{', '\\');

$node->safe_psql('postgres', <<'SQL' . join '', map { my $n = $_; "CREATE TYPE only_$n AS (v $types[$n][0]);\n" } grep { $types[$_][1] eq $populated } 0 .. $#types);
CREATE TYPE mood AS ENUM ('sad', 'so so');
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
CREATE DOMAIN given AS text NOT NULL;
CREATE TYPE pair AS (n integer, t text);
CREATE DOMAIN known_pair AS pair CHECK ((VALUE).n IS NOT NULL);

-- What is expected of each handler's parameters, and what was made of args.
CREATE TABLE parameter (worker text, n int, name text, value text, default_value text);
CREATE TABLE input (n serial, worker text, args jsonb, job bigint, result jsonb, error text, sqlstate text);

-- Args that a handler can never take are refused, and make no job.
ALTER TABLE input ADD COLUMN refused text;
CREATE PROCEDURE enqueue_all() LANGUAGE plpgsql AS $$
DECLARE
	i input;
BEGIN
	FOR i IN SELECT * FROM input LOOP
		BEGIN
			i.job := queue_jobs.enqueue(i.worker, i.args);
		EXCEPTION WHEN invalid_parameter_value THEN
			i.refused := SQLERRM;
		END;
		UPDATE input SET job = i.job, refused = i.refused WHERE n = i.n;
	END LOOP;
END
$$;

-- What a handler's result is to be, or its error, by conversions of one value each.
CREATE PROCEDURE expect() LANGUAGE plpgsql AS $$
DECLARE
	i input;
	p parameter;
	value text;
BEGIN
	FOR i IN SELECT * FROM input LOOP
		i.result := '[]';
		BEGIN
			IF jsonb_typeof(i.args) <> 'object' THEN
				RAISE SQLSTATE '22023' USING MESSAGE = 'args must be a JSON object for a handler with named parameters';
			END IF;
			SELECT * INTO p FROM parameter WHERE worker = i.worker AND default_value IS NULL AND NOT i.args ? name ORDER BY n LIMIT 1;
			IF FOUND THEN
				RAISE SQLSTATE '22023' USING MESSAGE = format('args have no key "%s"', p.name);
			END IF;
			FOR p IN SELECT * FROM parameter WHERE worker = i.worker ORDER BY n LOOP
				IF i.args ? p.name THEN
					EXECUTE format('SELECT (%s)::text', p.value) INTO value USING CASE WHEN i.args -> p.name = 'null' THEN i.args - p.name ELSE i.args END, p.name;
				ELSE
					EXECUTE format('SELECT (%s)::text', p.default_value) INTO value;
				END IF;
				i.result := i.result || jsonb_build_array(value);
			END LOOP;
		EXCEPTION WHEN OTHERS THEN
			i.result := NULL;
			i.error := SQLERRM;
			i.sqlstate := SQLSTATE;
		END;
		UPDATE input SET result = i.result, error = i.error, sqlstate = i.sqlstate WHERE n = i.n;
	END LOOP;
END
$$;
SQL

# ---- args ----

sub random_string
{
	return '"' . join('', map { one_of('a' .. 'f', 0 .. 9, ' ', ',', '{', '}', '(', ')', '[', ']', '-', ':', '.', '\\"', '\\\\', 'e', '+', '%', '\\u00e9', 'NULL') } 1 .. rand 12) . '"';
}

# One character of a string more, less or another; anything else as it is.
sub mutated
{
	my ($json) = @_;

	return $json if $json !~ /^"([ -!#-\[\]-~]+)"$/;
	my $text = $1;
	substr $text, rand length $text, int(rand 2), one_of('', 0 .. 9, 'e', '-', '.', ' ', '{', ',', ')');
	return "\"$text\"";
}

sub random_json
{
	my ($depth) = @_;
	my $kind = rand 10;

	return '[' . join(', ', map { random_json($depth - 1) } 1 .. rand 4) . ']' if $depth > 0 && $kind < 1;
	return '{' . join(', ', map { '"' . one_of(qw(n t v a 0)) . '": ' . random_json($depth - 1) } 1 .. rand 4) . '}' if $depth > 0 && $kind < 2;
	return random_string() if $kind < 4;
	return one_of('null', 'true', 'false') if $kind < 5;
	return one_of(@any);
}

sub json_string { my ($text) = @_; $text =~ s/(["\\])/\\$1/g; return "\"$text\""; }

sub random_args
{
	my (@parameters) = @_;
	my @keys;

	return one_of('[]', '[1]', '1', '"x"', 'null', '{}') if rand() < 0.03;
	foreach my $p (@parameters)
	{
		next if rand() < ($p->{default} ? 0.3 : 0.02);
		my $kind = rand 10;
		push @keys, json_string($p->{name}) . ': '
		  . ($kind < 8.5 ? likely_of(@{ $p->{type}[3] }) : $kind < 9 ? mutated(one_of(@{ $p->{type}[3] })) : $kind < 9.5 ? 'null' : random_json(3));
	}
	push @keys, json_string(one_of('more', 'A', '', 'n' x 64)) . ': ' . random_json(2) if rand() < 0.3;
	return '{' . join(', ', @keys) . '}';
}

# ---- handlers ----

sub define_handler
{
	my ($worker, $count) = @_;
	my %left = map { $_ => 1 } @names;
	my $defaults_from = $count - int(rand(1 + $count));
	my (@parameters, $sql);

	foreach my $n (0 .. $count - 1)
	{
		my $t = int rand @types;
		my $name = $count <= 8 ? one_of(sort keys %left) : "p$n";
		delete $left{$name};
		push @parameters, { name => $name, type => $types[$t], default => $n >= $defaults_from };
		$sql .= sprintf "INSERT INTO parameter VALUES ('$worker', $n, %s, %s, %s);\n", literal($name),
		  literal($types[$t][1] =~ s/TYPE/$types[$t][0]/r =~ s/NULL::only_N/NULL::only_$t/r), $n >= $defaults_from ? literal("$types[$t][2]::$types[$t][0]") : 'NULL';
	}
	my $list = join ', ', map { identifier($_->{name}) . " $_->{type}[0]" . ($_->{default} ? " DEFAULT $_->{type}[2]" : '') } @parameters;
	my $values = join ' || ', "'[]'::jsonb", map { "jsonb_build_array(\$$_\::text)" } 1 .. $count;
	my $kind = rand 3;
	$sql .=
		$kind < 1 ? "CREATE FUNCTION $worker($list) RETURNS jsonb LANGUAGE sql AS \$\$ SELECT $values \$\$;"
	  : $kind < 2 ? "CREATE FUNCTION $worker($list) RETURNS jsonb LANGUAGE plpgsql AS \$\$ BEGIN RETURN $values; END \$\$;"
	  : "CREATE PROCEDURE $worker(OUT outcome jsonb, $list) LANGUAGE plpgsql AS \$\$ BEGIN outcome := "
	  . ($values =~ s/\$(\d+)/'$' . ($1 + 1)/ger) . '; COMMIT; END $$;';
	$node->safe_psql('postgres', "$sql SELECT queue_jobs.define_worker('$worker', 'public.$worker', max_retries => 0)");
	return @parameters;
}

my ($jobs, $failed, $wrong) = (0, 0, '');
my $handlers = 0;
do
{
	my $sql = 'TRUNCATE input;';

	foreach (1 .. 20)
	{
		my $worker = 'fuzzed_' . ++$handlers;
		my @parameters = define_handler($worker, rand() < 0.1 ? 90 : 1 + int rand 6);
		# a lone jsonb takes the args as they are
		next if @parameters == 1 && $parameters[0]{type}[0] eq 'jsonb';
		$sql .= 'INSERT INTO input (worker, args) VALUES ' . join(', ', map { "('$worker', " . literal(random_args(@parameters)) . ')' } 1 .. 60) . ";\n";
	}
	$node->safe_psql('postgres', "$sql CALL enqueue_all(); CALL expect()");
	wait_until($node, q{SELECT count(*) = 0 FROM queue_jobs.job WHERE worker LIKE 'fuzzed%' AND state NOT IN ('completed', 'dead')});
	$jobs += $node->safe_psql('postgres', 'SELECT count(*) FROM input');
	$failed += $node->safe_psql('postgres', 'SELECT count(*) FROM input WHERE error IS NOT NULL');
	$wrong .= $node->safe_psql('postgres', <<'SQL');
SELECT i.worker, left(i.args::text, 300), 'expected: ' || left(coalesce(i.result::text, i.error), 300), 'got: ' || left(coalesce(j.result::text, j.last_error, i.refused, 'nothing'), 300)
  FROM input i LEFT JOIN queue_jobs.job j ON j.id = i.job
 WHERE (j.id IS NULL) <> (i.refused IS NOT NULL) OR (i.refused IS NOT NULL) <> (i.sqlstate = '22023' AND i.error LIKE 'args %') IS TRUE
    OR coalesce(j.result -> 'outcome', j.result) IS DISTINCT FROM i.result OR coalesce(i.refused, j.last_error) IS DISTINCT FROM i.error
    OR coalesce(j.errors -> -1 ->> 'sqlstate', CASE WHEN i.refused IS NOT NULL THEN '22023' END) IS DISTINCT FROM i.sqlstate OR i.sqlstate LIKE 'XX%'
 LIMIT 5
SQL
} while (time < $end && $wrong eq '');
is($wrong, '', 'args: the same values, or the same errors, as by plain SQL');
cmp_ok($failed, '>', $jobs / 20, 'args: some of them are refused');
cmp_ok($failed, '<', $jobs * 19 / 20, 'args: some of them are not');
note("$handlers handlers, $jobs jobs, $failed of them refused");

# ---- times ----

$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.define_worker('waits');
CREATE TABLE outcome (call text, expected text, got text);
-- Makes the call, and says what came of it: the job's times with what the call's were, or the error.
CREATE PROCEDURE try(call text, allowed text, holds text) LANGUAGE plpgsql AS $$
DECLARE
	expected text;
	got text;
	was bigint := (SELECT count(*) FROM queue_jobs.job WHERE worker = 'waits');
	made bigint;
	began timestamptz;
	fits boolean;
	j record;
BEGIN
	EXECUTE 'SELECT CASE WHEN ' || allowed || $_$ THEN 'kept' ELSE 'refused' END$_$ INTO expected;
	BEGIN
		began := clock_timestamp();
		EXECUTE format('SELECT queue_jobs.enqueue(''waits'', %s)', call) INTO made;
		SELECT run_at, expires_at, began AS before, clock_timestamp() AS after INTO j FROM queue_jobs.job WHERE id = made;
		EXECUTE 'SELECT ' || holds INTO fits USING j.run_at, j.expires_at, j.before, j.after;
		got := CASE WHEN fits THEN 'kept' ELSE 'changed to ' || j::text END;
	EXCEPTION WHEN invalid_parameter_value OR datetime_field_overflow THEN
		got := 'refused';
	END;
	IF (SELECT count(*) FROM queue_jobs.job WHERE worker = 'waits') <> was + (got <> 'refused')::integer THEN
		got := 'another number of jobs';
	END IF;
	INSERT INTO outcome VALUES (call, expected, got);
END
$$;
SQL

# Months, days and microseconds, of which one may be as large as it can be; whether enqueue() is to take it; and its length, a month being 30 days.
sub random_interval
{
	my @parts = (int(rand 10) - 3, int(rand 100) - 30, int(rand 1e9) - 3e8);
	my $large = int rand 6;

	$parts[$large] = one_of('2147483647', '-2147483648', '12000', '13000', '365000', '365001', '-1', '0') if $large < 2;
	$parts[2] = one_of('9223372036854775807', '-9223372036854775807', '31536000000000000', '31536000000000001', '-1', '0', '86400000000') if $large == 2;
	@parts = (0, 0, $parts[2]) if rand() < 0.2;
	my $microseconds = "($parts[2]::numeric + ($parts[1]::numeric + 30 * $parts[0]::numeric) * 86400000000)";
	return (sprintf("interval '%s months %s days %s microseconds'", @parts), "$microseconds BETWEEN 0 AND 365000 * 86400000000::numeric", $microseconds);
}

sub random_time
{
	return "timestamptz '" . one_of('infinity', '-infinity', 'epoch', '294276-12-31 23:59:59.999999', '4713-01-01 BC', '2000-01-01') . "'" if rand() < 0.3;
	return sprintf "timestamptz '%04d-%02d-%02d %02d:%02d:%02d.%06d%s'", one_of(1 + int rand 290000, 1900 + int rand 200), 1 + int rand 12, 1 + int rand 28,
	  int rand 24, int rand 60, int rand 60, int rand 1e6, one_of('', '+14', '-12:34:56', ' Europe/Berlin', ' Pacific/Apia');
}

# In microseconds the first two are some hours more than 2^64.
my $calls = join '', map { "CALL try('$_', 'false', 'true');\n" } "jitter => ''-213503982 days''", "delay => ''-213503982 days''",
  "jitter => ''99999999 days 4600000000000000000 microseconds''", "expires_in => ''-3333333 months''";
foreach (1 .. 400)
{
	my $time = random_time();
	my ($interval, $allowed, $microseconds) = random_interval();
	my $finite = "isfinite($time)";
	my @call =
	  @{ one_of([ "run_at => $time", $finite, "\$1 = $time" ],
		[ "delay => $interval", $allowed, "\$1 BETWEEN \$3 + $interval AND \$4 + $interval" ],
		[ "run_at => $time, delay => $interval", 'false', 'false' ],
		[ "run_at => $time, expires_in => $interval", "$finite AND $allowed", "\$1 = $time AND \$2 = $time + $interval" ],
		[ "run_at => $time, jitter => $interval", "$finite AND $allowed", "extract(epoch FROM \$1 - $time) * 1000000 BETWEEN 0 AND $microseconds" ]) };
	# the first and the last days there are may be passed by chance or not
	next if $call[0] =~ /294276|BC/ && $call[0] =~ /jitter|expires_in/;
	$calls .= 'CALL try(' . join(', ', map { literal($_) } @call) . ");\n";
}
$node->safe_psql('postgres', $calls);
is($node->safe_psql('postgres', 'SELECT * FROM outcome WHERE got <> expected LIMIT 5'), '', 'times: kept exactly, or refused and nothing written');
cmp_ok($node->safe_psql('postgres', q{SELECT least(count(*) FILTER (WHERE got = 'kept'), count(*) FILTER (WHERE got = 'refused')) FROM outcome}), '>', 20, 'times: some of each');

# ---- cron expressions, in any time zone, from any time ----

my @zones = split /\n/, $node->safe_psql('postgres', 'SELECT name FROM pg_timezone_names ORDER BY name');
sub random_zone
{
	my $zone = one_of(@zones);

	return $zone if rand() < 0.5;
	return one_of('EST5EDT,M3.2.0,M11.1.0', '<+03>-3', 'X-167:59:59', 'A0B,J1,J365', 'posix/UTC', '../../etc/passwd', '', ' ', 'UTC-24', 'CET-1CEST,0,0', '5', 'now', 'A' x 300) if rand() < 0.5;
	substr $zone, rand length $zone, 1, one_of('', 'x', '/', ',', '-', '5', '<');
	return $zone;
}

sub random_field
{
	my ($low, $high) = @_;

	return join ',', map { one_of('*', '*/' . int rand $high + 2, $low + int rand $high - $low + 2, int(rand $high) . '-' . int rand $high + 1) } 1 .. 1 + int rand 2;
}

my $series = '';
foreach (1 .. 150)
{
	my $cron = rand() < 0.2 ? one_of('every 10 years', 'every 1 second', '@yearly', '0 0 29 2 *', '0 0 31 * *', '0 2 * * *', 'every 3650 days 1 second', '59 59 23 31 12 *')
	  : join ' ', random_field(0, 59), random_field(0, 23), random_field(1, 31), random_field(1, 12), random_field(0, 7);
	$series .= 'CALL check_ticks(' . literal($cron) . ', ' . literal(random_zone()) . ', ' . random_time() . ");\n";
}
$node->safe_psql('postgres', <<'SQL' . $series);
CREATE TABLE wrong_ticks (cron text, timezone text, after timestamptz, ticks timestamptz[]);
CREATE TABLE ticks_seen (n int);
CREATE PROCEDURE check_ticks(cron text, timezone text, after timestamptz) LANGUAGE plpgsql AS $$
DECLARE
	ticks timestamptz[];
BEGIN
	ticks := ARRAY(SELECT queue_jobs.next_runs(cron, timezone, after, 5));
	INSERT INTO ticks_seen VALUES (cardinality(ticks));
	INSERT INTO wrong_ticks SELECT cron, timezone, after, ticks
	 WHERE ticks <> ARRAY(SELECT DISTINCT t FROM unnest(ticks) t WHERE t > after AND isfinite(t) ORDER BY t);
EXCEPTION WHEN invalid_parameter_value THEN
	NULL;
END
$$;
SQL
is($node->safe_psql('postgres', 'SELECT * FROM wrong_ticks LIMIT 5'), '', 'ticks go forward, whatever the time zone and the time');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM ticks_seen WHERE n = 5'), '>', 10, '… of many');

is(log_count($node, qr/was terminated by signal|TRAP|PANIC/), 0, 'no process was taken down');
$node->stop;
done_testing();
