# The bridge (bridge/): jobs are enqueued on a server that has neither the library nor the extension, and run
# on another, each once: by the examples of docs/how-to/bridge.md, in their order; with every option; refused
# and tried again; through a subscription that is disabled, kill -9 of either server under load, and a slot
# that is lost. The outbox is trimmed of what has arrived alone.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $root = $ENV{TESTDIR} // '.';
my $dir = PostgreSQL::Test::Utils::tempdir;
my $limit = $PostgreSQL::Test::Utils::timeout_default;
# How many jobs wait in the outbox while the subscription is disabled, and how many of them a transaction brings. QUEUE_JOBS_OUTBOX=1000000
# takes a quarter of an hour or more: PG_TEST_TIMEOUT_DEFAULT=3600, too.
my $held = $ENV{QUEUE_JOBS_OUTBOX} // 3000;
my $piece = $held < 10000 ? $held : 10000;

my $managed = PostgreSQL::Test::Cluster->new('managed');
$managed->init(allows_streaming => 'logical');
$managed->append_conf('postgresql.conf', "timezone = 'UTC'");
# The roles that come from the queue server have passwords, and must give them.
my $hba = slurp_file($managed->data_dir . '/pg_hba.conf');
unlink $managed->data_dir . '/pg_hba.conf';
append_to_file($managed->data_dir . '/pg_hba.conf', "local shop shop,bridge scram-sha-256\n$hba");
$managed->start;
my $queue = new_node('queue', conf => "wal_retrieve_retry_interval = '200 ms'");
define_gated($queue);
$ENV{PGPASSWORD} = 'secret';

# ---- the documentation's examples ----

# The fenced blocks that have a comment for tests: { language, text, expected, server, role, … }, as in
# docs_examples.pl.
sub examples
{
	my ($file) = @_;
	my $text = slurp_file($file);
	my @examples;

	while ($text =~ /^<!-- test\n(.*?)^-->\n```(\w+)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?/gms)
	{
		my ($keys, $language, $code, $expected) = ($1, $2, $3, $4);
		push @examples, { language => $language, text => $code, expected => $expected, $keys =~ /^(\w+): (.*)$/mg };
	}
	return @examples;
}

# With the managed server's address in place of the example's.
sub addressed
{
	my ($text) = @_;
	my ($host, $port) = ($managed->host, $managed->port);

	return $text =~ s/host=managed\.example\.com/host=$host port=$port/gr =~ s/host 'managed\.example\.com'/host '$host', port '$port'/gr;
}

sub connection
{
	my ($example) = @_;
	my $node = $example->{server} eq 'managed' ? $managed : $queue;

	return (PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => $node == $managed ? 'shop' : 'postgres', PGUSER => $example->{role} // 'postgres', PGCLIENTENCODING => 'UTF8');
}

sub matches
{
	my ($got, $expected) = @_;

	$_ = join("\n", grep { $_ ne '' } map { s/\s+$//r } split /\n/) for $got, $expected;
	my $pattern = join '.*?', map { quotemeta } split /\xe2\x80\xa6/, $expected, -1;
	return $got =~ /^$pattern$/s;
}

sub run_sql_example
{
	my ($example) = @_;
	my $end = time + $limit;
	my ($output, $good);

	local %ENV = (%ENV, connection($example));
	while (1)
	{
		IPC::Run::run([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1' ], '<', \addressed($example->{text}), '>', \$output, '2>&1');
		$good = $? == 0 && (!defined $example->{expected} || matches($output, $example->{expected}));
		last if $good || !$example->{retry} || time > $end;
		select undef, undef, undef, 0.2;
	}
	ok($good, 'example: ' . $example->{text} =~ s/\n.*//sr) or diag($output);
	return;
}

# Runs a program until the managed server says that it has done its work.
sub run_python_example
{
	my ($example) = @_;
	my $python = python_with('psycopg');

  SKIP:
	{
		skip 'no Python with psycopg', 1 unless $python;
		local %ENV = (%ENV, connection($example));
		my $text = addressed($example->{text}) =~ s/"dbname=shop user=shop"/"dbname=postgres user=shop"/r;
		append_to_file("$dir/claimant.py", $text);
		my $program = IPC::Run::start([ $python, "$dir/claimant.py" ], '>', "$dir/claimant.out", '2>&1');
		ok(eval { wait_until($managed, $example->{then_managed}, db => 'shop') }, 'example: a claimant') or diag(slurp_file("$dir/claimant.out"));
		$program->kill_kill;
	}
	return;
}

# ---- what else is needed ----

sub on_managed
{
	my ($sql, $user) = @_;

	return $managed->safe_psql('shop', $sql, extra_params => [ '-U', $user // 'shop' ]);
}

# The SQLSTATEs and messages of the errors of the calls, on both servers.
sub errors
{
	my ($node, $db, $user, @calls) = @_;

	return join "\n", whole_errors($node, $db, $user, @calls) =~ /ERROR:  (.*)/g;
}

# With all that psql says of them.
sub whole_errors
{
	my ($node, $db, $user, @calls) = @_;
	my (undef, undef, $errors) = $node->psql($db, join("\n", '\set VERBOSITY verbose', map { "$_;" } @calls), on_error_stop => 0, extra_params => [ '-U', $user ]);

	return $errors;
}

# Until all that was committed to the outbox has arrived.
sub wait_for_arrival
{
	my $ids = $managed->safe_psql('shop', q{SELECT coalesce(string_agg(id::text, ','), '0') FROM queue_jobs_bridge.outbox});

	return wait_until($queue, qq{SELECT NOT EXISTS (SELECT FROM unnest('{$ids}'::bigint[]) id WHERE id <> 0 AND id NOT IN (SELECT id FROM queue_jobs_bridge.outbox))});
}

# Kills the postmaster and starts another, as soon as the processes of the first have gone.
sub kill_and_restart
{
	my ($node) = @_;
	my $end = time + $limit;

	my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
	$node->kill9;
	while (kill(0, $postmaster) && time <= $end) { select undef, undef, undef, 0.1 }
	until ($node->start(fail_ok => 1) || time > $end) { select undef, undef, undef, 0.2 }
	return;
}

# Starts clients that write a ledger and enqueue, or roll both back.
sub start_load
{
	my $script = "$dir/load.sql";

	append_to_file($script, <<'SQL') unless -e $script;
\set lost random(1, 5)
BEGIN;
INSERT INTO ledger VALUES (nextval('numbers'));
SELECT queue_jobs.enqueue('quick', jsonb_build_object('n', currval('numbers')));
SAVEPOINT s;
SELECT queue_jobs.enqueue('quick', '{"n": -1}');
ROLLBACK TO s;
\if :lost = 1
ROLLBACK;
\else
COMMIT;
\endif
SQL
	my $output = '';
	return IPC::Run::start([ 'pgbench', '-n', '-c', '4', '-t', '600', '-f', $script, $managed->connstr('shop') . ' user=shop' ], '>', \$output, '2>&1');
}

# ---- set up, and the examples ----

$managed->safe_psql('postgres', <<'SQL');
CREATE ROLE admin LOGIN CREATEROLE;
CREATE ROLE shop LOGIN PASSWORD 'secret';
CREATE ROLE stranger LOGIN;
CREATE DATABASE shop OWNER admin;
SQL
$managed->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$root/bridge/managed.sql", $managed->connstr('shop') . ' user=admin' ], 'managed.sql, as the owner of the database');
$queue->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$root/bridge/receiving.sql", $queue->connstr('postgres') ], 'receiving.sql');
my @examples = examples("$root/docs/how-to/bridge.md");
cmp_ok(scalar(@examples), '>=', 12, 'the documentation has examples');
my %named = map { $_->{as} => $_ } grep { $_->{as} } @examples;
$managed->safe_psql('shop', 'GRANT CREATE ON SCHEMA public TO shop');
foreach my $example (grep { !$_->{as} } @examples)
{
	$example->{language} eq 'python' ? run_python_example($example) : run_sql_example($example);
	$managed->safe_psql('shop', 'ALTER ROLE bridge REPLICATION') if $example->{text} =~ /CREATE ROLE bridge/;
}

# ---- the same functions, the same rights ----

my $signatures = q{SELECT proname, pg_get_function_arguments(oid), pg_get_function_result(oid), provolatile, proparallel FROM pg_proc
	WHERE pronamespace = 'queue_jobs'::regnamespace AND proname IN ('enqueue', 'try_enqueue', 'enqueue_many') ORDER BY 1};
is($managed->safe_psql('shop', $signatures), $queue->safe_psql('postgres', $signatures), 'the functions are as in the extension');
is($managed->safe_psql('shop', q{SELECT count(*) FROM pg_extension WHERE extname = 'queue_jobs'; SHOW shared_preload_libraries}), "0\n", 'which is not there');
is($managed->safe_psql('shop', q{SELECT count(*) FROM pg_proc WHERE pronamespace IN ('queue_jobs'::regnamespace, 'queue_jobs_bridge'::regnamespace)
	AND (proacl IS NULL OR proacl::text ~ '(^.|,)=' OR proconfig IS NULL)}), '0', 'PUBLIC has no rights, and each function its search_path');
like(errors($managed, 'shop', 'stranger', q{SELECT queue_jobs.enqueue('quick')}), qr/^42501:/, 'a role without the right cannot enqueue');
is(errors($managed, 'shop', 'shop', q{INSERT INTO queue_jobs_bridge.outbox (owner, worker, args, priority) VALUES ('postgres', 'quick', '{}', 0)}, q{SELECT args FROM queue_jobs_bridge.outbox},
	q{DELETE FROM queue_jobs_bridge.outbox}, q{SELECT setval('queue_jobs_bridge.outbox_id_seq', 1)}) =~ s/: .*//gr, join("\n", ('42501') x 4), 'nor can one with it write what it likes');

my @refused = (
	q{enqueue(NULL)} => '22004: worker must not be null',
	q{try_enqueue('outside', NULL)} => '22004: args must not be null',
	q{enqueue('outside', run_at => now(), delay => '1 s')} => '22023: run_at and delay cannot both be given',
	q{enqueue('outside', run_at => 'infinity')} => '22023: run_at must be finite',
	q{enqueue('outside', delay => '-1 s')} => '22023: delay is out of range',
	q{enqueue('outside', jitter => '2000 years')} => '22023: jitter is out of range',
	q{enqueue('outside', if_dead => 'x')} => '22023: if_dead must be hold, cancel or run',
	q{enqueue('outside', context => '[1]')} => '22023: context must be a JSON object',
	q{enqueue_many('outside', '{"{}"}', contexts => '{1}')} => '22023: context must be a JSON object',
	q{try_enqueue('outside', context => jsonb_build_object('c', repeat('x', 102400)))} => '54000: context is too large',
	q{enqueue('outside', (SELECT jsonb_build_object('a', jsonb_agg(1e131071)) FROM generate_series(1, 1100)))} => '54000: text of args is too long',
	q{enqueue('outside', dedup_key => repeat('k', 8193))} => '22023: dedup_key is too long',
	q{enqueue('outside', queue => repeat('q', 201))} => '22023: invalid queue name "' . 'q' x 201 . '"',
	q{enqueue('outside', after => array_fill(1::bigint, ARRAY[10001]))} => '54000: too many jobs to run after',
	q{enqueue_many('outside', ARRAY['{}', NULL]::jsonb[])} => '22004: args must not be null',
	q{enqueue_many('outside', '{"{}"}', contexts => '{}')} => '22023: contexts must have one element for each of args',
	q{enqueue_many('outside', '{"{}"}', batch_size => 1)} => '22023: batch_size and batch_interval go together',
	q{enqueue_many('outside', '{"{}"}', batch_size => 0, batch_interval => '1 s')} => '22023: batch_size must be positive',
	q{enqueue('outside', max_retries => -1)} => '22023: max_retries must not be negative',
	q{enqueue('outside', timeout => '999 us')} => '22023: timeout is out of range',
	q{try_enqueue('outside', timeout => '24 days 1 us')} => '22023: timeout is out of range',
	q{enqueue('outside', keep_completed => '-1 us')} => '22023: keep_completed is out of range',
	q{enqueue('outside', keep_completed => '540 days 1 us')} => '22023: keep_completed is out of range',
	q{enqueue('outside', tags => array_fill('t'::text, ARRAY[101]))} => '22023: tags has too many elements',
	q{enqueue('outside', tags => ARRAY['t', NULL])} => '22023: invalid element of tags: "NULL"',
	q{enqueue('outside', tags => '{""}')} => '22023: invalid element of tags: ""',
	q{enqueue('outside', tags => ARRAY[repeat('t', 201)])} => '22023: invalid element of tags: "' . 't' x 201 . '"',
	q{enqueue('outside', dedup_key => 'k', if_waiting => 'x')} => '22023: if_waiting must be drop, replace, replace_args or debounce',
	q{enqueue('outside', dedup_key => 'k', if_waiting => 'replace', max_delay => '1 s')} => '22023: max_delay needs if_waiting => "debounce"',
	q{enqueue('outside', dedup_key => 'k', if_waiting => 'debounce', run_at => now())} => '22023: if_waiting => "debounce" needs a delay',
	q{enqueue('outside', dedup_key => 'k', if_waiting => 'debounce', delay => '1 s', max_delay => '-1 s')} => '22023: max_delay is out of range',
	q{enqueue_many('outside', '{"{}"}', run_ats => '{}')} => '22023: run_ats must have one element for each of args',
	q{enqueue_many('outside', '{"{}"}', run_ats => '{infinity}')} => '22023: run_at must be finite',
	q{enqueue_many('outside', '{"{}"}', priorities => '{1, 2}')} => '22023: priorities must have one element for each of args',
	q{enqueue_many('outside', '{"{}"}', dedup_keys => '{}')} => '22023: dedup_keys must have one element for each of args',
	q{enqueue_many('outside', '{"{}"}', dedup_keys => ARRAY[repeat('k', 8193)])} => '22023: dedup_key is too long',
	q{enqueue_many('outside', '{"{}"}', jitter => '-1 s')} => '22023: jitter is out of range',
	q{enqueue_many('outside', '{"{}"}', expires_in => '-1 s')} => '22023: expires_in is out of range',
	q{enqueue_many('outside', '{"{}"}', tags => '{""}')} => '22023: invalid element of tags: ""',
	q{enqueue_many('outside', '{"{}"}', max_retries => -1)} => '22023: max_retries must not be negative',
);
my @calls = map { "SELECT queue_jobs.$refused[$_]" } grep { $_ % 2 == 0 } 0 .. $#refused;
my $messages = join "\n", map { $refused[$_] } grep { $_ % 2 } 0 .. $#refused;
$queue->safe_psql('postgres', q{SELECT queue_jobs.define_worker('outside')});
my $before = $managed->safe_psql('shop', 'SELECT count(*) FROM queue_jobs_bridge.outbox');
is(errors($managed, 'shop', 'shop', @calls), $messages, 'bad values are refused');
is(errors($queue, 'postgres', 'postgres', @calls), $messages, '… as by the extension');
# The options of a job, with their details and hints, too.
my @of_options = grep { /max_retries|timeout|keep_completed|tags|if_waiting|run_ats => '\{\}'|priorities|dedup_keys => '\{\}'/ } @calls;
my ($by_managed, $by_extension) = map { join "\n", $_ =~ /^((?:ERROR|DETAIL|HINT):.*)/mg } map { s/^psql:<stdin>:\d+: //gmr } whole_errors($managed, 'shop', 'shop', @of_options), whole_errors($queue, 'postgres', 'postgres', @of_options);
is($by_managed, $by_extension, '… in the same words');
cmp_ok(scalar(() = $by_managed =~ /^HINT:/mg), '==', scalar(@of_options), '… with a hint each');
like(errors($managed, 'shop', 'shop', q{SET queue_jobs.context = 'no'}, q{SELECT queue_jobs.enqueue('quick')}), qr/^22P02:/, 'so is a context that is not JSON');
is($managed->safe_psql('shop', 'SELECT count(*) FROM queue_jobs_bridge.outbox'), $before, 'they leave nothing');

# What the queue server could not read, or not in a time that is bearable, would hold up the rows of all roles. No role gets such a row in, by INSERT either.
my $insert = 'INSERT INTO queue_jobs_bridge.outbox (worker, args, priority, %s) VALUES (%s)';
my $nested = q{(repeat('[', 1001) || repeat(']', 1001))::jsonb};
my @poison = (
	sprintf($insert, 'queue', q{repeat('w', 300000000), '{}', 0, NULL}) => '22023: invalid worker name "' . 'w' x 500 . '"',
	sprintf($insert, 'queue', q{'outside', '{}', 0, repeat('q', 1000000)}) => '22023: invalid queue name "' . 'q' x 500 . '"',
	sprintf($insert, 'dedup_key', q{'outside', '{}', 0, repeat('k', 1000000)}) => '22023: dedup_key is too long',
	sprintf($insert, 'if_dead', q{'outside', '{}', 0, repeat('i', 1000000)}) => '22023: if_dead must be hold, cancel or run',
	sprintf($insert, 'after', q{'outside', '{}', 0, array_fill(1::bigint, ARRAY[3000000])}) => '54000: too many jobs to run after',
	sprintf($insert, 'queue', q{'outside', jsonb_build_object('c', repeat(chr(1), 30000000)), 0, NULL}) => '54000: text of args is too long',
	sprintf($insert, 'queue', qq{'outside', $nested, 0, NULL}) => '54000: JSON of args is nested too deeply',
	sprintf($insert, 'context', qq{'outside', '{}', 0, jsonb_build_object('c', $nested)}) => '54000: JSON of context is nested too deeply',
	sprintf($insert, 'context', q{'outside', '{}', 0, '1'}) => '22023: context must be a JSON object',
	sprintf($insert, 'expires_in', q{'outside', '{}', 0, '178000000 years'}) => '22023: expires_in is out of range',
	sprintf($insert, 'jitter', q{'outside', '{}', 0, '-1 s'}) => '22023: jitter is out of range',
	sprintf($insert, 'tags', q{'outside', '{}', 0, array_fill('t'::text, ARRAY[3000000])}) => '22023: tags has too many elements',
	sprintf($insert, 'tags', q{'outside', '{}', 0, ARRAY[repeat('t', 1000000)]}) => '22023: invalid element of tags: "' . 't' x 500 . '"',
	sprintf($insert, 'if_waiting', q{'outside', '{}', 0, repeat('i', 1000000)}) => '22023: if_waiting must be drop, replace, replace_args or debounce',
	sprintf($insert, 'max_delay', q{'outside', '{}', 0, '178000000 years'}) => '22023: max_delay is out of range',
	sprintf($insert, 'timeout', q{'outside', '{}', 0, '0'}) => '22023: timeout is out of range',
	sprintf($insert, 'keep_completed', q{'outside', '{}', 0, '2 years'}) => '22023: keep_completed is out of range',
);
is(errors($managed, 'shop', 'shop', map { $poison[$_] } grep { $_ % 2 == 0 } 0 .. $#poison), join("\n", map { $poison[$_] } grep { $_ % 2 } 0 .. $#poison),
	'no role gets a row into the outbox that the queue server could not take');
is($managed->safe_psql('shop', 'SELECT count(*) FROM queue_jobs_bridge.outbox'), $before, 'they leave nothing, either');
on_managed(sprintf($insert, 'queue', q{'outside', (repeat('[', 1000) || repeat(']', 1000))::jsonb, 0, NULL}));
wait_until($queue, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'outside' AND args::text LIKE '[[[[%'});
pass('what is just small enough arrives');
# One that gets in all the same is set aside, with a reason that is short, and holds up nothing.
$managed->safe_psql('shop', 'ALTER TABLE queue_jobs_bridge.outbox DISABLE TRIGGER check_row');
on_managed(sprintf($insert, 'after', q{'outside', '{"aside": 1}', 0, array_fill(1::bigint, ARRAY[3000000])}));
on_managed(sprintf($insert, 'queue', q{repeat('w', 3000000), '{"aside": 2}', 0, NULL}));
on_managed(sprintf($insert, 'if_dead', q{'outside', '{"aside": 3}', 0, repeat('i', 3000000)}));
$managed->safe_psql('shop', 'ALTER TABLE queue_jobs_bridge.outbox ENABLE TRIGGER check_row');
on_managed(q{SELECT queue_jobs.enqueue('outside', '{"behind": 1}')});
wait_until($queue, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE args ? 'behind'});
is($queue->safe_psql('postgres', q{SELECT args, sqlstate, left(error, 20), length(error) < 1000 FROM queue_jobs_bridge.rejected ORDER BY id}),
	qq({"aside": 1}|54000|too many jobs to run|t\n{"aside": 2}|42704|worker "wwwwwwwwwwww|t\n{"aside": 3}|22023|if_dead must be hold|t), 'what gets in all the same is set aside');
$queue->safe_psql('postgres', q{SELECT queue_jobs_bridge.discard_rejected(); SELECT queue_jobs.remove_jobs('outside')});

# ---- each option, transactions ----

$queue->safe_psql('postgres', <<'SQL');
CREATE ROLE other LOGIN;
GRANT queue_jobs_enqueue TO other;
SQL
$managed->safe_psql('shop', 'CREATE ROLE other LOGIN; GRANT queue_jobs_enqueue TO other; GRANT other TO shop');
my $batch = $queue->safe_psql('postgres', q{SET SESSION AUTHORIZATION shop; SELECT queue_jobs.new_batch(open => true)});
on_managed(<<"SQL");
SELECT queue_jobs.enqueue('outside', '{"plain": 1}');
SELECT queue_jobs.enqueue('outside', '{"options": 1}', priority => 7, queue => 'elsewhere', dedup_key => 'key', context => '{"c": 1}', batch => $batch);
SELECT queue_jobs.enqueue('outside', '{"due": 1}', run_at => '2500-01-01 00:00:00Z');
SELECT queue_jobs.try_enqueue('outside', '{"delayed": 1}', delay => '1 day', jitter => '0');
SELECT queue_jobs.enqueue('outside', '{"expires": 1}', expires_in => '0');
SELECT queue_jobs.try_enqueue('outside', '{"options": 2}', queue => 'elsewhere', dedup_key => 'key') > 0;
SET queue_jobs.context = '{"from": "the session"}';
SELECT queue_jobs.enqueue_many('outside', ARRAY['{"many": 1}', '{"many": 2}', '{"many": 3}']::jsonb[], run_at => '2500-01-01 00:00:00Z', batch_size => 2, batch_interval => '1 h');
SELECT queue_jobs.enqueue_many('outside', ARRAY['{"own": 1}', '{"own": 2}']::jsonb[], contexts => ARRAY['{"n": 1}', NULL]::jsonb[]);
RESET queue_jobs.context;
BEGIN;
SELECT queue_jobs.enqueue('outside', '{"kept": 1}');
SAVEPOINT s;
SELECT queue_jobs.enqueue('outside', '{"lost": 1}');
ROLLBACK TO s;
SELECT queue_jobs.enqueue('outside', '{"waits": 1}', after => ARRAY[queue_jobs.enqueue('outside', '{"first": 1}')]);
SET LOCAL ROLE other;
SELECT queue_jobs.enqueue('outside', '{"of": "other"}');
COMMIT;
BEGIN;
SELECT queue_jobs.enqueue('outside', '{"lost": 2}');
ROLLBACK;
SELECT queue_jobs.enqueue('outside', '{"last": 1}');
SQL
wait_until($queue, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE args ? 'last'});
my $jobs = q{SELECT args, queue, state, priority, dedup_key, context, owner FROM queue_jobs.job WHERE worker = 'outside' ORDER BY id};
is($queue->safe_psql('postgres', $jobs), <<'ROWS' =~ s/\n\z//r, 'jobs have what they were given, in their order, each once');
{"plain": 1}|outside|available|0|||shop
{"options": 1}|elsewhere|available|7|key|{"c": 1}|shop
{"due": 1}|outside|scheduled|0|||shop
{"delayed": 1}|outside|scheduled|0|||shop
{"expires": 1}|outside|cancelled|0|||shop
{"many": 1}|outside|scheduled|0||{"from": "the session"}|shop
{"many": 2}|outside|scheduled|0||{"from": "the session"}|shop
{"many": 3}|outside|scheduled|0||{"from": "the session"}|shop
{"own": 1}|outside|available|0||{"n": 1}|shop
{"own": 2}|outside|available|0|||shop
{"kept": 1}|outside|available|0|||shop
{"first": 1}|outside|available|0|||shop
{"waits": 1}|outside|waiting|0|||shop
{"of": "other"}|outside|available|0|||other
{"last": 1}|outside|available|0|||shop
ROWS
is($queue->safe_psql('postgres', q{SELECT args, run_at AT TIME ZONE 'UTC' FROM queue_jobs.job WHERE worker = 'outside' AND run_at > '2500-01-01'::timestamptz - '1 s'::interval ORDER BY id}), <<'ROWS' =~ s/\n\z//r, 'run_at');
{"due": 1}|2500-01-01 00:00:00
{"many": 1}|2500-01-01 00:00:00
{"many": 2}|2500-01-01 00:00:00
{"many": 3}|2500-01-01 01:00:00
ROWS
is($queue->safe_psql('postgres', q{SELECT j.run_at - o.created_at BETWEEN '1 day' AND '1 day 10 min' FROM queue_jobs.job j JOIN queue_jobs_bridge.outbox o ON o.job = j.id WHERE j.args ? 'delayed'}),
	't', 'a delay counts from the enqueue');
is($queue->safe_psql('postgres', qq{SELECT args FROM queue_jobs.job WHERE batch = $batch}), '{"options": 1}', 'a batch');
is($queue->safe_psql('postgres', q{SELECT count(*), count(DISTINCT o.job) FROM queue_jobs_bridge.outbox o JOIN queue_jobs.job j ON j.id = o.job WHERE o.dedup_key = 'key'}), '2|1', 'a duplicate has the job that stands for it');
is($queue->safe_psql('postgres', 'SELECT count(*) FROM queue_jobs_bridge.outbox WHERE (job IS NULL OR args IS NOT NULL OR error IS NOT NULL) AND sqlstate IS NULL'), '0', 'args are kept once');

# ---- the options of a job, and what becomes of the job that waits ----

$queue->safe_psql('postgres', q{SELECT queue_jobs.define_worker('options', max_retries => 5); SELECT queue_jobs.define_worker('quiet', if_waiting => 'debounce', max_delay => '30 days')});
on_managed(<<'SQL');
SELECT queue_jobs.enqueue('options', '{"n": 1}', max_retries => 0, timeout => '10 min', keep_completed => '1 day', tags => '{nightly, customer-42}');
SELECT queue_jobs.try_enqueue('options', '{"n": 2}', max_retries => 2, tags => '{}');
SELECT queue_jobs.enqueue_many('options', ARRAY['{"n": 3}', '{"n": 4}', '{"n": 5}']::jsonb[], run_at => '2500-01-01 00:00:00Z', priority => 7, run_ats => ARRAY[NULL, '2600-01-01 00:00:00Z', NULL]::timestamptz[],
	priorities => '{NULL, 3, 0}', dedup_keys => '{a, NULL, b}', queue => 'elsewhere', jitter => '0', expires_in => '1 day', tags => '{many}', max_retries => 1);
SELECT queue_jobs.enqueue('options', '{"r": 1}', run_at => '2500-01-01 00:00:00Z', dedup_key => 'r', tags => '{first}', if_waiting => 'replace');
SELECT queue_jobs.enqueue('options', '{"r": 2}', run_at => '2600-01-01 00:00:00Z', dedup_key => 'r', priority => 4, tags => '{second}', if_waiting => 'replace');
SELECT queue_jobs.enqueue('options', '{"r": 3}', dedup_key => 'r', if_waiting => 'replace_args');
SELECT queue_jobs.enqueue_many('options', ARRAY['{"k": 1}', '{"k": 2}']::jsonb[], dedup_keys => '{k, k}');
SELECT queue_jobs.enqueue('options', '{"k": 3}', dedup_key => 'k', if_waiting => 'drop');
BEGIN;
SELECT queue_jobs.enqueue('options', jsonb_build_object('d', n), dedup_key => 'd', if_waiting => 'debounce', delay => CASE n WHEN 40 THEN '1 day' ELSE '2 days' END::interval) FROM generate_series(1, 40) n;
COMMIT;
SELECT queue_jobs.enqueue('options', '{"m": 1}', dedup_key => 'm', if_waiting => 'debounce', delay => '10 days', max_delay => '1 day');
SELECT queue_jobs.enqueue('quiet', '{"q": 1}', dedup_key => 'q', delay => '20 days');
SELECT queue_jobs.enqueue('quiet', '{"q": 2}', dedup_key => 'q', delay => '40 days');
SELECT queue_jobs.enqueue('quiet', '{"o": 1}', dedup_key => 'o', delay => '40 days', max_delay => '10 days');
SELECT queue_jobs.enqueue('options', '{"end": 1}');
SQL
wait_until($queue, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'options' AND args ? 'end'});
is($queue->safe_psql('postgres', q{SELECT args, queue, priority, max_attempts, tags, dedup_key, run_at > '2500-01-01'::timestamptz - interval '1 s' AND extract(year FROM run_at AT TIME ZONE 'UTC') IN (2500, 2600) AS far
	FROM queue_jobs.job WHERE worker = 'options' AND (args ? 'n' OR args ? 'r' OR args ? 'k') ORDER BY id}), <<'ROWS' =~ s/\n\z//r, 'options arrive, and a NULL element is the value for all');
{"n": 1}|options|0|1|{nightly,customer-42}||f
{"n": 2}|options|0|3|||f
{"n": 3}|elsewhere|7|2|{many}|a|t
{"n": 4}|elsewhere|3|2|{many}||t
{"n": 5}|elsewhere|0|2|{many}|b|t
{"r": 3}|options|4|6||r|t
{"k": 1}|options|0|6||k|f
ROWS
is($queue->safe_psql('postgres', q{SELECT args, to_char(run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'), expires_at - run_at FROM queue_jobs.job WHERE worker = 'options' AND (args @> '{"n": 3}' OR args @> '{"n": 4}' OR args ? 'r') ORDER BY id}),
	<<'ROWS' =~ s/\n\z//r, 'times, too; replace_args leaves that of the call before');
{"n": 3}|2500-01-01 00:00:00|1 day
{"n": 4}|2600-01-01 00:00:00|1 day
{"r": 3}|2600-01-01 00:00:00|
ROWS
is($queue->safe_psql('postgres', q{SELECT e.detail FROM queue_jobs.job j CROSS JOIN LATERAL queue_jobs.explain_job(j.id) e WHERE j.worker = 'options' AND j.args @> '{"n": 1}' AND e.reason = 'options'}),
	$queue->safe_psql('postgres', q{SELECT queue_jobs.enqueue('options', max_retries => 0, timeout => '10 min', keep_completed => '1 day', tags => '{nightly, customer-42}') AS job \gset
	SELECT detail FROM queue_jobs.explain_job(:job) WHERE reason = 'options'; SELECT queue_jobs.discard(:job) \g /dev/null}), 'explain_job() says the same as of a job that was enqueued there');
is($queue->safe_psql('postgres', q{SELECT count(*), count(DISTINCT job) FROM queue_jobs_bridge.outbox WHERE dedup_key IN ('r', 'd', 'q', 'k') AND error IS NULL}), '48|4', 'calls of a key are one job');
is($queue->safe_psql('postgres', q{SELECT j.args, j.owner, round(extract(epoch FROM j.run_at - o.created_at) / 86400) FROM queue_jobs.job j
	JOIN LATERAL (SELECT max(created_at) AS created_at FROM queue_jobs_bridge.outbox o WHERE o.job = j.id) o ON true WHERE j.dedup_key IN ('d', 'm', 'q', 'o') ORDER BY j.id}),
	<<'ROWS' =~ s/\n\z//r, 'a debounced job is due its delay after the latest call, or max_delay after the first has arrived; a worker may say so for all calls');
{"d": 40}|shop|1
{"m": 1}|shop|1
{"q": 2}|shop|30
{"o": 1}|shop|10
ROWS
on_managed(<<'SQL');
SELECT queue_jobs.enqueue('options', '{"refused": 1}', if_waiting => 'replace');
SELECT queue_jobs.enqueue('options', '{"refused": 2}', dedup_key => 'x', max_delay => '1 s');
SELECT queue_jobs.enqueue('quiet', '{"refused": 3}', dedup_key => 'x');
SELECT queue_jobs.enqueue('options', '{"end": 2}');
SQL
on_managed(q{INSERT INTO queue_jobs_bridge.outbox (worker, args, priority, run_at, if_waiting) VALUES ('options', '{"refused": 4}', 0, 'infinity', 'debounce')});
on_managed(q{INSERT INTO queue_jobs_bridge.outbox (worker, args, priority, dedup_key, if_waiting) VALUES ('options', '{"refused": 5}', 0, 'x', 'debounce')});
on_managed(q{SELECT queue_jobs.enqueue('options', '{"end": 3}')});
wait_until($queue, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'options' AND args @> '{"end": 3}'});
is($queue->safe_psql('postgres', q{SELECT args, sqlstate, CASE WHEN sqlstate <> '22008' THEN split_part(error, E'\n', 1) END FROM queue_jobs_bridge.rejected ORDER BY id}), <<'ROWS' =~ s/\n\z//r, 'what only the queue server knows is refused there');
{"refused": 1}|22023|if_waiting needs a deduplication key
{"refused": 2}|22023|max_delay needs if_waiting => "debounce"
{"refused": 3}|22023|if_waiting => "debounce" needs a delay
{"refused": 4}|22008|
{"refused": 5}|22023|if_waiting => "debounce" needs a delay
ROWS
# Late, a debounced job is due at once. What expired on the way has expired.
$queue->safe_psql('postgres', 'SELECT queue_jobs_bridge.discard_rejected(); ALTER SUBSCRIPTION queue_jobs_bridge DISABLE');
wait_until($queue, 'SELECT pid IS NULL FROM queue_jobs_bridge.subscription');
on_managed(<<'SQL');
SELECT queue_jobs.enqueue('options', '{"late": 1}', dedup_key => 'late', if_waiting => 'debounce', delay => '1 ms');
SELECT queue_jobs.enqueue('options', '{"late": 2}', dedup_key => 'too late', if_waiting => 'debounce', delay => '1 ms', expires_in => '1 ms');
SELECT queue_jobs.enqueue('options', '{"late": 3}', dedup_key => 'not too late', if_waiting => 'debounce', delay => '1 ms', expires_in => '1 day');
SQL
wait_until($queue, qq{SELECT clock_timestamp() > '@{[ $managed->safe_psql('shop', 'SELECT clock_timestamp()') ]}'::timestamptz + interval '10 ms'});
$queue->safe_psql('postgres', 'ALTER SUBSCRIPTION queue_jobs_bridge ENABLE');
wait_until($queue, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'options' AND args @> '{"late": 3}'});
is($queue->safe_psql('postgres', q{SELECT j.args, j.run_at <= j.created_at AS due, j.expires_at <= j.created_at AS expired, j.expires_at >= o.run_at + o.expires_in AND j.expires_at < j.created_at + interval '1 day' AS as_given
	FROM queue_jobs.job j JOIN queue_jobs_bridge.outbox o ON o.job = j.id WHERE j.worker = 'options' AND j.args ? 'late' ORDER BY j.id}), <<'ROWS' =~ s/\n\z//r, 'the way over adds nothing to a delay, nor to expires_in');
{"late": 1}|t||
{"late": 2}|t|t|t
{"late": 3}|t|f|t
ROWS

# ---- refused, and tried again ----

$managed->safe_psql('shop', 'CREATE ROLE missing; GRANT queue_jobs_enqueue TO missing; CREATE ROLE unheard; GRANT queue_jobs_enqueue TO unheard; GRANT missing, unheard TO shop');
$queue->safe_psql('postgres', 'CREATE ROLE unheard');
on_managed(<<'SQL');
BEGIN;
SELECT queue_jobs.enqueue('later', '{"n": 1}');
SELECT queue_jobs.enqueue('later', '{"n": 2}', after => ARRAY[queue_jobs.enqueue('later', '{"n": 3}')]);
SELECT queue_jobs.enqueue('quick', '[]');
SELECT queue_jobs.enqueue('quick', '{"n": 4}', queue => 'x*');
SET LOCAL ROLE missing;
SELECT queue_jobs.enqueue('quick', '{"n": 5}');
SET LOCAL ROLE unheard;
SELECT queue_jobs.enqueue('quick', '{"n": 6}');
COMMIT;
SQL
$managed->safe_psql('shop', q{SELECT queue_jobs.enqueue('quick', '{"n": 7}')});
on_managed(q{SELECT queue_jobs.enqueue('quick', '{"n": 8}')});
wait_until($queue, 'SELECT count(*) = 1 FROM ran WHERE n = 8');
my $refused = $queue->safe_psql('postgres', q{SELECT owner, args, sqlstate, split_part(error, E'\n', 1) FROM queue_jobs_bridge.rejected ORDER BY created_at});
is($refused =~ s/row \d+/row …/r =~ s/(denied for ).*/$1…/r, <<'ROWS' =~ s/\n\z//r, 'what is refused holds up nothing, and says why');
shop|{"n": 1}|42704|worker "later" is not defined
shop|{"n": 3}|42704|worker "later" is not defined
shop|{"n": 2}|42704|row … of the outbox has no job here
shop|[]|22023|args must be a JSON object for a handler with named parameters
shop|{"n": 4}|22023|invalid queue name "x*"
missing|{"n": 5}|42704|role "missing" does not exist
unheard|{"n": 6}|42501|permission denied for …
postgres|{"n": 7}|42501|role "postgres" is a superuser here
ROWS
is($queue->safe_psql('postgres', q{SELECT ok FROM queue_jobs_bridge.health WHERE name = 'rejected'; SELECT value FROM queue_jobs_bridge.metric WHERE name = 'queue_jobs_bridge_rejected'}), "f\n8", 'as health and metric do');
is($queue->safe_psql('postgres', 'SELECT errors >= 0 FROM queue_jobs_bridge.subscription'), 't', 'the errors of the subscription are counted, whatever the server calls them');
is($queue->safe_psql('postgres', 'SELECT queue_jobs_bridge.retry_rejected()'), '0', 'tried again, they are refused again');
is($queue->safe_psql('postgres', q{SELECT owner, args, sqlstate, split_part(error, E'\n', 1) FROM queue_jobs_bridge.rejected ORDER BY created_at}) =~ s/(denied for ).*/$1…/r, $refused =~ s/(denied for ).*/$1…/r, '… as before');
$queue->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.define_worker('later', 'public.quick');
CREATE ROLE missing LOGIN;
GRANT queue_jobs_enqueue TO missing, unheard;
ALTER ROLE unheard LOGIN;
SQL
is($queue->safe_psql('postgres', q{SELECT queue_jobs_bridge.retry_rejected((SELECT id FROM queue_jobs_bridge.rejected WHERE args @> '{"n": 5}'))}), '1', 'one is accepted');
is($queue->safe_psql('postgres', 'SELECT queue_jobs_bridge.retry_rejected()'), '4', 'and those whose reason is gone');
is($queue->safe_psql('postgres', 'SELECT queue_jobs_bridge.discard_rejected()'), '3', 'the others are given up');
wait_until($queue, 'SELECT count(*) = 5 FROM ran WHERE n < 8');
is($queue->safe_psql('postgres', 'SELECT n, role FROM ran ORDER BY n'), "1|shop\n2|shop\n3|shop\n5|missing\n6|unheard\n8|shop", 'they run, as their owners');

# ---- a subscription that is disabled, and trim() ----

my $trim = q{SELECT queue_jobs_bridge.trim('0')};
my $left = q{SELECT count(*) FROM queue_jobs_bridge.outbox};
$queue->safe_psql('postgres', q{SELECT queue_jobs.unschedule('trim the outbox')});
wait_for_arrival();
$queue->safe_psql('postgres', $trim);
is($managed->safe_psql('shop', $left), '0', 'what has arrived is trimmed');
$queue->safe_psql('postgres', 'TRUNCATE ran; CREATE INDEX ON ran (n); ALTER SUBSCRIPTION queue_jobs_bridge DISABLE');
wait_until($queue, 'SELECT pid IS NULL FROM queue_jobs_bridge.subscription');
for (my $first = 1; $first <= $held; $first += $piece)
{
	on_managed("SELECT count(*) FROM queue_jobs.enqueue_many('quick', ARRAY(SELECT jsonb_build_object('n', n) FROM generate_series($first, $first + $piece - 1) n))");
}
is($queue->safe_psql('postgres', $trim), '0', 'what has not arrived is not trimmed');
is($managed->safe_psql('shop', $left), $held, 'it stays in the outbox');
is($queue->safe_psql('postgres', q{SELECT name, value FROM queue_jobs_bridge.health WHERE name = 'on_the_way' OR name = 'subscription' AND NOT ok}) =~ s/, the oldest.*//r, "subscription|is disabled\non_the_way|$held rows had not arrived", 'health says so');
is($queue->safe_psql('postgres', q{SELECT name, value FROM queue_jobs_bridge.metric WHERE name IN ('queue_jobs_bridge_up', 'queue_jobs_bridge_on_the_way') ORDER BY 1}), "queue_jobs_bridge_on_the_way|$held\nqueue_jobs_bridge_up|0", 'and metric');
$queue->safe_psql('postgres', 'ALTER SUBSCRIPTION queue_jobs_bridge ENABLE');
my $began = time;
# Rows arrive in their order, and looking costs little, however many have run.
wait_until($queue, "SELECT EXISTS (SELECT FROM ran WHERE n = $held) AND (SELECT sum(scheduled + available + executing + retryable) = 0 FROM queue_jobs.queue WHERE queue = 'quick')");
note(sprintf '%d jobs arrived and ran in %d s', $held, time - $began);
is($queue->safe_psql('postgres', 'SELECT count(*), count(DISTINCT n) FROM ran'), "$held|$held", 'it arrives once it may, each job once');
$began = time;
is($queue->safe_psql('postgres', $trim), $held, 'what has arrived meanwhile is trimmed');
note(sprintf 'trimmed in %d s', time - $began);

# ---- kill -9 of either, under load ----

on_managed('CREATE TABLE ledger (n int PRIMARY KEY); CREATE SEQUENCE numbers');
$queue->safe_psql('postgres', 'TRUNCATE ran');
foreach my $victim ($queue, $managed, $queue, $managed)
{
	my $count = on_managed('SELECT count(*) FROM ledger');
	my $load = start_load();

	wait_until($managed, "SELECT count(*) > $count + 300 FROM ledger", db => 'shop');
	kill_and_restart($victim);
	eval { $load->finish };
	$queue->safe_psql('postgres', q{SELECT queue_jobs_bridge.trim('0')});
}
my $numbers = q{SELECT count(*), md5(string_agg(n::text, ',' ORDER BY n)) FROM };
my $ledger = on_managed($numbers . 'ledger');
wait_for_arrival();
wait_until($queue, q{SELECT NOT EXISTS (SELECT FROM queue_jobs.job WHERE worker = 'quick' AND state <> 'completed')});
is($queue->safe_psql('postgres', $numbers . 'ran'), $ledger, 'each job that was committed has run once, and no other');
cmp_ok($ledger =~ s/\|.*//r, '>', 1200, 'under a load');
is($queue->safe_psql('postgres', q{SELECT string_agg(DISTINCT role, ' ') FROM ran}), 'shop', 'as its owner');

# ---- a slot that is lost ----

$queue->safe_psql('postgres', $trim);
is($managed->safe_psql('shop', $left), '0', 'all is trimmed');
$queue->safe_psql('postgres', 'TRUNCATE ran');
on_managed(q{SELECT queue_jobs.enqueue('quick', jsonb_build_object('n', n)) FROM generate_series(1, 100) n});
wait_for_arrival();
$queue->safe_psql('postgres', 'ALTER SUBSCRIPTION queue_jobs_bridge DISABLE');
wait_until($managed, q{SELECT NOT active FROM pg_replication_slots WHERE slot_name = 'queue_jobs_bridge'});
on_managed(q{SELECT queue_jobs.enqueue('quick', jsonb_build_object('n', n)) FROM generate_series(101, 200) n});
$managed->safe_psql('postgres', q{SELECT pg_drop_replication_slot('queue_jobs_bridge')});
on_managed(q{SELECT queue_jobs.enqueue('quick', jsonb_build_object('n', n)) FROM generate_series(201, 300) n});
run_sql_example($named{remade});
on_managed(q{SELECT queue_jobs.enqueue('quick', jsonb_build_object('n', n)) FROM generate_series(301, 400) n});
wait_for_arrival();
wait_until($queue, 'SELECT count(*) = 400 FROM ran');
is($queue->safe_psql('postgres', 'SELECT count(*), count(DISTINCT n) FROM ran'), '400|400', 'a new subscription brings what had not arrived, and nothing twice');

# ---- an id that a managed server gives once more, after a failover that lost its first use ----

$queue->safe_psql('postgres', $trim);
$managed->safe_psql('shop', 'ALTER TABLE queue_jobs_bridge.outbox ALTER id RESTART');
is(on_managed(q{SELECT queue_jobs.enqueue('quick', '{"n": 401}')}), '1', 'an id comes once more');
wait_until($queue, 'SELECT count(*) = 1 FROM ran WHERE n = 401');
wait_until($queue, q{SELECT ok FROM queue_jobs_bridge.health WHERE name = 'subscription'});
$queue->safe_psql('postgres', $trim);
is($queue->safe_psql('postgres', 'SELECT string_agg(name, \' \') FROM queue_jobs_bridge.health WHERE NOT ok'), '', 'all is well in the end');

$managed->stop;
$queue->stop;
done_testing();
