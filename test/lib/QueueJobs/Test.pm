# What the TAP tests share: a server with queue_jobs, and waiting for something to become true (never for time to pass).
package QueueJobs::Test;

use strict;
use warnings;

use Carp;
use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(new_node wait_until wait_for_job retry_crashed executor_pids wait_for_no_processes stop_scheduler wait_for_replay define_gated define_gated_procedure in_background log_count can_encrypt python_with run_quietly);

# Runs a command, and says whether it succeeded.
sub run_quietly
{
	my $output;
	return eval { IPC::Run::run(\@_, '>', \$output, '2>', \$output) };
}

# The first Python that has the module, or undef.
sub python_with
{
	my ($module) = @_;

	return (grep { run_quietly($_, '-c', "import $module") } 'python3', '/usr/bin/python3')[0];
}

# Starts a server that has the extension in its database postgres.
#   conf       lines for postgresql.conf, after (and so stronger than) ours
#   init       arguments of PostgreSQL::Test::Cluster->init, e.g. [ allows_streaming => 1 ]
#   start      0: only set up, not started
#   extension  0: no CREATE EXTENSION
#   install_path  the installation to use; default: the one that is tested
sub new_node
{
	my ($name, %opts) = @_;

	my $node = PostgreSQL::Test::Cluster->new($name, install_path => $opts{install_path});
	$node->init(@{ $opts{init} // [] });
	$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'queue_jobs'
max_worker_processes = 16
max_prepared_transactions = 10
timezone = 'UTC'
log_line_prefix = '%m [%p] %b %d %q%a '
CONF
	$node->append_conf('postgresql.conf', $opts{conf}) if defined $opts{conf};
	return $node unless $opts{start} // 1;

	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION queue_jobs')
	  if $opts{extension} // 1;
	return $node;
}

# Jobs that have crashed: their delay is Sidekiq's, 15 s and more, whatever their worker says.
my $retry_crashed = q{SELECT count(queue_jobs.retry(id)) FROM queue_jobs.job
	WHERE state = 'retryable' AND errors -> -1 ->> 'sqlstate' = '57P02'};

# Waits until the query returns true (or what is expected instead), through restarts and crashes of the server; gives up
# with the query and the jobs as they stand.
#   db         default: postgres
#   expected   what the query is to return; default: true
#   retry_crashed  1: before each look, jobs that have crashed are retried at once
#   meanwhile  called after each look that has not found it
sub wait_until
{
	my ($node, $query, %opts) = @_;
	my $db = $opts{db} // 'postgres';
	my $expected = $opts{expected} // 't';
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my ($session, $out, $err);

	# One session for all looks: to start a psql for each takes more of the processors than what is tested.
	while (time <= $end)
	{
		# It dies when the server closes the connection under it.
		my $seen = eval {
			$session //= in_background($node, db => $db);
			$session->query($retry_crashed) if $opts{retry_crashed};
			$out = $session->query($query);
			$err = $session->error;
			$err eq '' && $out eq $expected;
		};
		if ($@)
		{
			$err = $@;
			eval { $session->quit } if defined $session;
			undef $session;
		}
		if ($seen)
		{
			$session->quit;
			return 1;
		}
		$opts{meanwhile}->() if $opts{meanwhile};
		select undef, undef, undef, 0.05;
	}
	$session->quit if defined $session;

	my $jobs = eval { $node->safe_psql($db,
		'SELECT id, worker, state, attempt, run_at, last_error FROM queue_jobs.job ORDER BY id DESC LIMIT 20') };
	croak "gave up waiting for: $query\nlast result: " . ($out // '') . ($err // '') . "\nlast jobs:\n" . ($jobs // '(none)');
}

# Waits until the job is in the state.
sub wait_for_job
{
	my ($node, $id, $state, %opts) = @_;

	return wait_until($node,
		"SELECT coalesce((SELECT state::text FROM queue_jobs.job WHERE id = $id), '(no such job)')",
		%opts, expected => $state);
}

# Retries jobs at once that have crashed.
sub retry_crashed
{
	my ($node) = @_;

	# psql() dies when the server closes the connection under it.
	eval { $node->psql('postgres', $retry_crashed) };
	return;
}

# The process ids of the executors that are up, in one database or in all.
sub executor_pids
{
	my ($node, $db) = @_;

	my $pids = $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type = 'queue_jobs executor'"
		  . (defined $db ? " AND datname = '$db'" : '')
		  . ' ORDER BY pid');
	return split /\n/, $pids;
}

# Waits until no scheduler and no executor is connected to the database.
sub wait_for_no_processes
{
	my ($node, $db) = @_;

	return wait_until($node,
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = '$db' AND backend_type LIKE 'queue_jobs %'",
		db => $db eq 'postgres' ? 'template1' : 'postgres');
}

# Stops the scheduler of the database postgres by a signal, while it sleeps: it has no lock that others need. Returns its
# process id.
sub stop_scheduler
{
	my ($node) = @_;
	my $scheduler = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'queue_jobs scheduler' AND datname = 'postgres'};

	wait_until($node, "SELECT count(*) = 1 FROM ($scheduler AND state = 'idle' AND wait_event_type = 'Extension') s");
	my $pid = $node->safe_psql('postgres', $scheduler);
	kill 'STOP', $pid or croak "$pid: $!";
	return $pid;
}

# Returns when the standbys have replayed all that has been written so far. (A commit that is flushed, and with it what
# others have written without one: a job's location may be behind that.)
sub wait_for_replay
{
	my ($node, @standbys) = @_;
	my $lsn = $node->safe_psql('postgres', q{SELECT pg_logical_emit_message(true, 'flushed', '')});

	wait_until($_, "SELECT pg_last_wal_replay_lsn() >= '$lsn'") for @standbys;
	return;
}

# Defines workers whose jobs run for as long as a test wants. 'gated' ({"n": …}) leaves a row in ran and waits until its
# n is in the table gate; 'quick' leaves a row and is done. Each row tells who ran the job, and with which attempt.
sub define_gated
{
	my ($node, %opts) = @_;

	$node->safe_psql($opts{db} // 'postgres', <<'SQL');
CREATE TABLE ran (n int, attempt int, role name DEFAULT session_user, pid int DEFAULT pg_backend_pid());
CREATE TABLE gate (n int);
GRANT ALL ON ran, gate TO PUBLIC;
CREATE FUNCTION quick(n int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO ran (n, attempt) SELECT quick.n, attempt FROM queue_jobs.current_job();
$$;
CREATE FUNCTION gated(n int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO ran (n, attempt) SELECT gated.n, attempt FROM queue_jobs.current_job();
	WHILE NOT EXISTS (SELECT FROM gate WHERE gate.n = gated.n) LOOP
		PERFORM pg_sleep(0.02);
	END LOOP;
END
$$;
SELECT queue_jobs.define_worker('quick', 'public.quick');
SELECT queue_jobs.define_worker('gated', 'public.gated');
SQL
	return;
}

# After define_gated(): 'gated procedure' leaves its row at once, and then waits likewise.
sub define_gated_procedure
{
	my ($node) = @_;

	$node->safe_psql('postgres', <<'SQL');
CREATE PROCEDURE gated_procedure(n int) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO ran (n, attempt) SELECT gated_procedure.n, attempt FROM queue_jobs.current_job();
	COMMIT;
	WHILE NOT EXISTS (SELECT FROM gate WHERE gate.n = gated_procedure.n) LOOP
		PERFORM pg_sleep(0.02);
	END LOOP;
END
$$;
SELECT queue_jobs.define_worker('gated procedure', 'public.gated_procedure');
SQL
	return;
}

# A session of its own, beside the test: see QueueJobs::Session below.
sub in_background
{
	my ($node, %opts) = @_;

	return QueueJobs::Session->new($node, %opts);
}

# How often the server has logged it.
sub log_count
{
	my ($node, $pattern) = @_;

	my @found = slurp_file($node->logfile) =~ /$pattern/g;
	return scalar @found;
}

# Whether the library encrypts args and results: not if it was built without OpenSSL's headers.
sub can_encrypt
{
	my ($node, %opts) = @_;
	my (undef, undef, $error) = $node->psql($opts{db} // 'postgres', q{BEGIN; SELECT queue_jobs.define_worker('encrypts', encrypt_result => true); ROLLBACK});

	return $error !~ /this library of queue_jobs cannot encrypt/;
}

# A psql that stays connected, for what a test does while something else goes on. (PostgreSQL::Test::Cluster has one,
# too, but another in each major version.)
package QueueJobs::Session;

use Carp;
use PostgreSQL::Test::Utils;

my $mark = '--- that was all ---';

# Connects.
#   db    default: postgres
#   user  default: the superuser
sub new
{
	my ($class, $node, %opts) = @_;

	my $connstr = $opts{connstr} // $node->connstr($opts{db} // 'postgres');
	$connstr .= " user='$opts{user}'" if defined $opts{user};
	my $self = bless { in => '', out => '', err => '' }, $class;
	$self->{timeout} = IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default);
	$self->{psql} = IPC::Run::start(
		[ $node->installed_command('psql'), '-XAtq', '-v', 'VERBOSITY=verbose', '-f', '-', '-d', $connstr ],
		'<', \$self->{in}, '>', \$self->{out}, '2>', \$self->{err}, $self->{timeout});
	return $self;
}

# Starts a statement, without waiting for its end.
sub send
{
	my ($self, $sql) = @_;

	$self->{out} = $self->{err} = '';
	$self->{busy} = 1;
	$self->{timeout}->start($PostgreSQL::Test::Utils::timeout_default);		# the one of the result before has run on
	$self->{in} .= "$sql\n;\n\\echo $mark\n";
	$self->{psql}->pump_nb;
	return;
}

# Waits for the end of what was sent; returns what it printed, rows as psql -At has them.
sub result
{
	my ($self) = @_;

	$self->{timeout}->start($PostgreSQL::Test::Utils::timeout_default);
	while ($self->{out} !~ /^\Q$mark\E$/m)
	{
		croak "session ended: $self->{err}" unless $self->{psql}->pumpable;
		$self->{psql}->pump;
	}
	$self->{busy} = 0;
	my ($rows) = $self->{out} =~ /^(.*?)\n?^\Q$mark\E$/ms;
	return $rows;
}

# Whether that end has come.
sub ended
{
	my ($self) = @_;

	$self->{psql}->pump_nb;
	return $self->{out} =~ /^\Q$mark\E$/m ? 1 : 0;
}

sub query
{
	my ($self, $sql) = @_;

	$self->send($sql);
	return $self->result;
}

# What the last statement printed to stderr.
sub error
{
	my ($self) = @_;

	return $self->{err};
}

sub pid
{
	my ($self) = @_;

	return $self->query('SELECT pg_backend_pid()');
}

# Disconnects; an open transaction is rolled back, a statement under way is left to the server.
sub quit
{
	my ($self) = @_;

	$self->{in} .= "\\q\n";
	($self->{busy} && !$self->ended) || !eval { $self->{psql}->finish } and $self->{psql}->kill_kill;
	return;
}

# The client is gone without a word to the server, as by kill -9.
sub kill_client
{
	my ($self) = @_;

	$self->{psql}->signal('KILL');
	eval { $self->{psql}->finish };
	return;
}

1;
