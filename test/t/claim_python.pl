# The Python examples of docs/how-to/claimants.md, as they stand there, where programs live: errors, a server that restarts, a client that is
# killed, SIGTERM, and the application's pooler with few connections beside them.
# The matrix runs it once.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $root = $ENV{TESTDIR} // '.';
my $node = new_node('python', extension => 0);
my $deadline = $PostgreSQL::Test::Utils::timeout_default;

$node->safe_psql('postgres', 'CREATE DATABASE shop');
$node->safe_psql('shop', <<'SQL');
CREATE EXTENSION queue_jobs;
CREATE SCHEMA app;
CREATE TABLE app.delivery (mail_id int PRIMARY KEY, by text NOT NULL);
CREATE TABLE app.parcel (id int PRIMARY KEY, by text NOT NULL);
SELECT queue_jobs.define_worker(name, max_retries => 3) FROM unnest(ARRAY['deliver', 'pack', 'notify']) name;
SQL

sub sql { return $node->safe_psql('shop', $_[0]) }

sub wait_for
{
	my ($condition) = @_;

	$node->poll_query_until('shop', $condition) or die "never: $condition";
	return;
}

# The program in a document that claims from the queue.
sub example
{
	my ($document, $queue) = @_;
	my @found = grep { /\{$queue\}/ } PostgreSQL::Test::Utils::slurp_file("$root/$document") =~ /^```python\n(.*?)^```$/msg;

	die "$document has no program for $queue" unless @found == 1;
	my $file = PostgreSQL::Test::Utils::tempdir() . "/$queue.py";
	PostgreSQL::Test::Utils::append_to_file($file, $found[0]);
	return $file;
}

sub start
{
	my ($python, $file) = @_;
	my $output = '';
	my $program = { output => \$output };

	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGUSER => $node->safe_psql('postgres', 'SELECT current_user'));
	$program->{harness} = IPC::Run::start([ $python, $file ], '>', \$output, '2>&1', IPC::Run::timeout($deadline));
	return $program;
}

# Sends the signal; returns the exit status, and how long that took.
sub end
{
	my ($program, $signal) = @_;
	my $since = time;

	$program->{harness}->signal($signal);
	eval { $program->{harness}->finish };
	return ($program->{harness}->full_result(0), time - $since);
}

# Its session waits for jobs.
sub wait_for_idle
{
	my ($count) = @_;

	wait_for("SELECT count(*) = $count FROM pg_stat_activity WHERE query LIKE 'CALL queue_jobs.wait_for_jobs%' AND state = 'active' AND datname = 'shop'");
	return;
}

# Each example, by what it works on: document, queue, driver, the args of a job, and those of one that fails.
my @examples = (
	[ 'docs/how-to/claimants.md', 'deliver', 'psycopg', 'mail_id', 'SELECT count(*) FROM app.delivery' ],
	[ 'docs/how-to/claimants.md', 'pack', 'psycopg2', 'parcel', 'SELECT count(*) FROM app.parcel' ],
	[ 'docs/how-to/claimants.md', 'notify', 'psycopg', 'to', q{SELECT count(*) FROM queue_jobs.job WHERE worker = 'notify' AND state = 'completed'} ]);
my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin', '/usr/local/sbin';

sub test_example
{
	my ($document, $queue, $driver, $key, $done) = @_;
	my $name = "$document, $driver, $queue";
	my $python = python_with($driver);

  SKIP:
	{
		skip "no Python with $driver (Debian: python3-$driver)", 1 unless $python;

		my $file = example($document, $queue);
		my $program = start($python, $file);
		my $enqueue = sub { return sql("SELECT queue_jobs.enqueue('$queue', '{\"$key\": $_[0]}')") };

		# Work, and an error, which is kept as it is.
		$enqueue->(1);
		my $bad = sql("SELECT queue_jobs.enqueue('$queue', '{\"wrong\": 0}')");
		wait_for("SELECT ($done) = 1");
		wait_for("SELECT state = 'retryable' FROM queue_jobs.job WHERE id = $bad");
		is(sql("SELECT last_error FROM queue_jobs.job WHERE id = $bad"), "KeyError: '$key'", "$name: the error is told by its kind");
		like(sql("SELECT errors -> 0 ->> 'detail' FROM queue_jobs.job WHERE id = $bad"), qr/^Traceback .*\bin (?:deliver|pack|notify)\b.*KeyError/s, '… with its stack');
		is(sql("SELECT attempt FROM queue_jobs.job WHERE id = $bad"), '1', '… once');

		# A restart, and the end of its session.
		wait_for_idle(1);
		$node->stop('fast');
$node->start;
		$enqueue->(2);
		wait_for("SELECT ($done) = 2");
		pass("$name: goes on after a restart of the server");
		wait_for_idle(1);
		sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL queue_jobs.wait_for_jobs%'});
		$enqueue->(3);
		wait_for("SELECT ($done) = 3");
		pass("$name: … and of its connection");

		# SIGTERM, while it waits.
		wait_for_idle(1);
		my ($status, $time) = end($program, 'TERM');
		is($status, 0, "$name: ends by itself at SIGTERM") or diag(${ $program->{output} });
		cmp_ok($time, '<', 55, '… soon');

		# Killed in the middle of a job, which is held up by a lock; then by SIGTERM, which gives it back.
		if ($queue ne 'notify')
		{
			my ($table) = $done =~ /FROM (\S+)/;
			my $lock = in_background($node, db => 'shop');

			$lock->query("BEGIN; LOCK TABLE $table IN SHARE MODE");
			my $job = $enqueue->(4);
			my $killed = start($python, $file);
			wait_for(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO app.%'});
			end($killed, 'KILL');
			is(sql("SELECT count(*) FROM queue_jobs.job WHERE id = $job AND state = 'available'"), '1', "$name: killed in the middle of a job, which is as it was");
			$lock->query('COMMIT');
			$program = start($python, $file);
			wait_for("SELECT ($done) = 4");
			pass('… and is done by the next');
			($status) = end($program, 'TERM');
			is($status, 0, '… which ends as well');
			$lock->quit;
		}
		is(sql("SELECT count(*) FROM queue_jobs.job WHERE worker = '$queue' AND state = 'executing'"), '0', "$name: no job is left in hand");
	}
	return;
}

# Five programs wait, each by its own connection; the application enqueues through a pooler that has four.
sub test_pooler
{
	my ($document, $queue, $driver, $key, $done) = @_;
	my $python = python_with($driver);

  SKIP:
	{
		skip "no Python with $driver (Debian: python3-$driver)", 1 unless $python;
		skip 'no pgbouncer (Debian: pgbouncer)', 1 unless $pgbouncer;

		my $dir = PostgreSQL::Test::Utils::tempdir_short();
		my ($host, $port) = ($node->host, $node->port);
		my $user = $node->safe_psql('postgres', 'SELECT current_user');
		PostgreSQL::Test::Utils::append_to_file("$dir/ini", <<"INI");
[databases]
* = host=$host port=$port user=$user
[pgbouncer]
listen_addr =
listen_port = $port
unix_socket_dir = $dir
auth_type = any
admin_users = nobody
pool_mode = transaction
default_pool_size = 4
ignore_startup_parameters = extra_float_digits
logfile = $dir/log
INI
		my $pooler = IPC::Run::start([ $pgbouncer, '-q', "$dir/ini" ], '>', \my $out, '2>', \my $err);
		my $end = time + $deadline;
		until (-S "$dir/.s.PGSQL.$port")
		{
			$pooler->pump_nb;
			die "pgbouncer did not start: $err" if time > $end;
			select undef, undef, undef, 0.02;
		}
		my $before = sql($done);
		my $file = example($document, $queue);
		my @programs = map { start($python, $file) } 1 .. 5;
		wait_for_idle(5);
		my @clients = map { in_background($node, connstr => "host=$dir port=$port dbname=shop") } 1 .. 8;
		my $enqueued = 0;
		for my $n (0 .. 39)
		{
			$enqueued += $clients[ $n % 8 ]->query("SELECT count(queue_jobs.enqueue('$queue', jsonb_build_object('$key', 1000 + $n)))");
		}
		is($enqueued, 40, "$queue: the application enqueues through the pooler while five wait");
		wait_for("SELECT ($done) = $before + 40");
		pass("$queue: five programs have done 40 jobs, each once");
		my @status = map { (end($_, 'TERM'))[0] } @programs;
		is("@status", '0 0 0 0 0', "$queue: all end at SIGTERM");
		$_->quit foreach @clients;
		$pooler->signal('TERM');
		eval { $pooler->finish };
	}
	return;
}

test_example(@$_) foreach @examples;
test_pooler(@$_) foreach @examples[ 0, 1 ];
$node->stop;
done_testing();
