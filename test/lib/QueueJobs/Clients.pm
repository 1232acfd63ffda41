# Runs the scenarios of test/clients/scenarios.json with one client of clients/. test/clients/README.md says what a step does, and what
# the programs clients/LANGUAGE/test/worker and enqueue have to do.
package QueueJobs::Clients;

use strict;
use warnings;

use Carp;
use Encode;
use Exporter 'import';
use IO::Select;
use IO::Socket::UNIX;
use IPC::Run;
use JSON::PP;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

our @EXPORT = qw(run_scenarios);

my $root = $ENV{TESTDIR} // '.';
my $deadline = $PostgreSQL::Test::Utils::timeout_default;
my $json = JSON::PP->new->utf8->canonical;

# What the scenario under way has: { language, node, standby, db, mode, dir, clients, lock, pooler, proxy }.
my $now = {};
# Every process that a scenario has started and that has not been waited for, by its id, with what to send a signal to: itself or its group.
my %alive;

# ---- the server, at an address that stays when another server takes its place ----

# A folder whose socket leads to whichever server is the primary, as an address does that moves in a failover.
sub point_to
{
	my ($node) = @_;
	my $socket = "$now->{dir}/.s.PGSQL.5432";

	unlink $socket;
	symlink $node->host . '/.s.PGSQL.' . $node->port, $socket or croak "$socket: $!";
	return;
}

# Texts of the scenarios are characters, those of psql are bytes.
sub sql { return $now->{node}->safe_psql($now->{db}, encode_utf8($_[0])) }

# The workers whose handlers each client has. at_once: no test waits for a backoff.
sub define_workers
{
	my ($node, $db) = @_;

	$node->safe_psql($db, <<'SQL');
CREATE EXTENSION queue_jobs;
CREATE TABLE ledger (key text NOT NULL, client text NOT NULL);
CREATE FUNCTION at_once(attempt integer) RETURNS interval LANGUAGE sql AS $$ SELECT interval '0' $$;
SELECT queue_jobs.define_worker(name, retry_backoff => 'public.at_once', max_retries => retries)
  FROM (VALUES ('ledger', 25), ('fails', 0), ('slow', 25), ('crashes', 1), ('echo', 25), ('snoozes', 25), ('waits', 25), ('steps', 3),
               ('continues', 25), ('reports', 25), ('enqueues', 25), ('asks', 25), ('odd', 0), ('executes', 0)) w (name, retries);
SQL
	return;
}

# ---- client programs ----

# The log of a client, and what it has to say about an event, each line one object. Other lines are not ours.
sub log_of
{
	my ($client) = @_;

	return '' unless -e $client->{log};
	return PostgreSQL::Test::Utils::slurp_file($client->{log});
}

sub events
{
	my ($client, $event) = @_;

	return grep { ref eq 'HASH' && ($_->{event} // '') eq $event }
	  map { my $line = $_; eval { $json->decode($line) } } grep { /^\{/ } split /\n/, log_of($client);
}

sub start_program
{
	my ($client) = @_;

	local %ENV = (%ENV, PGHOST => $client->{proxy} ? proxy() : $now->{dir}, PGPORT => 5432, PGDATABASE => $now->{db}, PGUSER => $now->{user},
		%{ $client->{environment} // {} }, SCENARIO => $json->encode($client->{options}));
	my $pid = fork // croak "fork: $!";
	if ($pid == 0)
	{
		open STDIN, '<', '/dev/null';
		open STDOUT, '>>', $client->{log};
		open STDERR, '>&', \*STDOUT;
		my $program = "$root/clients/$now->{language}/test/worker";
		restart_for_ever($program) if $client->{restart};
		{ exec $program }
		POSIX::_exit(127);
	}
	# Both do so: whichever comes first.
	setpgrp $pid, $pid if $client->{restart};
	$alive{$pid} = $client->{restart} ? -$pid : $pid;
	$client->{pid} = $pid;
	return;
}

# Runs the program again whenever it has ended: in a process of its own, for the test may look once in some seconds only on a busy machine.
sub restart_for_ever
{
	my ($program) = @_;

	setpgrp 0, 0;
	while (1)
	{
		my $pid = fork // POSIX::_exit(1);
		if ($pid == 0)
		{
			{ exec $program }
			POSIX::_exit(127);
		}
		waitpid $pid, 0;
		select undef, undef, undef, 0.05;
	}
}

# Whether the program has ended: its wait status, or undef. One that is restarted never does.
sub ended
{
	my ($client) = @_;

	return $client->{status} if defined $client->{status};
	return if waitpid($client->{pid}, POSIX::WNOHANG()) == 0;
	delete $alive{ $client->{pid} };
	return $client->{status} = $?;
}

# A wait that ends with the log of all clients if nothing comes of it; patience: so many times as long as usual.
sub wait_for
{
	my ($what, $condition, $patience) = @_;
	my $end = time + $deadline * ($patience // 1);

	while (time <= $end)
	{
		ended($_) foreach values %{ $now->{clients} };
		return if $condition->();
		select undef, undef, undef, 0.2;
	}
	croak join "\n", "gave up waiting for $what", jobs_as_they_stand(), map { "--- log of $_\n" . substr(log_of($now->{clients}{$_}), -4000) } sort keys %{ $now->{clients} };
}

sub jobs_as_they_stand
{
	return eval { sql('SELECT id, worker, state, attempt, claimant, last_error FROM queue_jobs.job ORDER BY id DESC LIMIT 20') } // '(no server)';
}

# True when the query says so; false while the server is away.
sub holds
{
	my ($query) = @_;
	my ($status, $out);

	eval { ($status, $out) = $now->{node}->psql($now->{db}, encode_utf8($query)) };
	return !$@ && $status == 0 && $out eq 't';
}

# ---- steps ----

my %steps = (
	client => sub {
		my ($step) = @_;
		my $name = $step->{client};
		my $client = $now->{clients}{$name} = {
			log => "$now->{dir}/" . join('_', $now->{db}, $name), restart => $step->{restart}, proxy => $step->{proxy}, environment => $step->{environment},
			options => { queues => ['*'], mode => $now->{mode}, concurrency => 2, batch => 2, lease => 60, grace => 60, name => $name, %{ $step->{options} // {} } } };

		unlink $client->{log};
		start_program($client);
	},
	enqueue => sub {
		my ($step) = @_;
		my $in = join '', map { $json->encode($_) . "\n" } map { repeated($_) } @{ $step->{enqueue} };

		local %ENV = (%ENV, PGHOST => $now->{dir}, PGPORT => $step->{pooler} ? pooler() : 5432, PGDATABASE => $now->{db}, PGUSER => $now->{user});
		my $ok = IPC::Run::run(["$root/clients/$now->{language}/test/enqueue"], '<', \$in, '>', \my $out, '2>', \my $err, IPC::Run::timeout($deadline));
		my $jobs = () = $in =~ /\n/g;
		my $ids = () = $out =~ /^(?:\d+|null)$/mg;
		croak "enqueue printed $ids ids for $jobs jobs: $out$err" unless $ok && $ids == $jobs;
	},
	sql => sub { sql($_[0]{sql}) },
	until => sub { my ($step) = @_; wait_for($step->{until}, sub { holds($step->{until}) }, $step->{patience}) },
	logged => sub {
		my ($step) = @_;
		my $says = $step->{says} // '';
		wait_for("event $step->{logged} of $step->{of} $says",
			sub { scalar grep { $json->encode($_) =~ /$says/i } events($now->{clients}{ $step->{of} }, $step->{logged}) });
	},
	# The connections that lead through the proxy say nothing any more.
	silent => sub { kill 'USR1', $now->{proxy} },
	# Handlers that write to the ledger wait from here on.
	lock => sub {
		$now->{lock} = in_background($now->{node}, db => $now->{db});
		$now->{lock}->query('BEGIN; LOCK TABLE ledger IN SHARE MODE');
	},
	unlock => sub { $now->{lock}->query('COMMIT'); (delete $now->{lock})->quit },
	# So many handlers wait for it.
	held => sub {
		my ($step) = @_;
		my $query = qq{SELECT count(*) = $step->{held} FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ~* '^INSERT INTO ledger'};
		wait_for("$step->{held} handlers that wait for the lock", sub { holds($query) });
	},
	signal => sub {
		my ($step) = @_;
		my $client = $now->{clients}{ $step->{of} };
		kill $step->{signal}, $client->{pid} or croak "no process of client $step->{of}";
	},
	exits => sub {
		my ($step) = @_;
		my $client = $now->{clients}{ $step->{exits} };
		wait_for("the end of client $step->{exits}", sub { defined ended($client) });
		is($client->{status}, $step->{status}, "$step->{name}") or diag(substr(log_of($client), -2000));
	},
	server => sub {
		my ($step) = @_;
		if ($step->{server} eq 'stop') { $now->{node}->stop('immediate') }
		else { $now->{node}->start }
		end_lock();
	},
	failover => sub {
		$now->{node}->wait_for_catchup($now->{standby});
		$now->{node}->stop('immediate');
		end_lock();
		$now->{standby}->promote;
		point_to($now->{standby});
		$now->{node} = delete $now->{standby};
	},
	watch => sub { $now->{watched} = -s $now->{node}->logfile },
	statements => sub {
		my ($step) = @_;
		my @found = grep { /$step->{statements}/ } watched_statements($step->{refused});
		my $name = "$step->{name}: " . @found . " statements like $step->{statements}";
		cmp_ok(scalar @found, '>=', $step->{at_least}, "$name, at least $step->{at_least}") if defined $step->{at_least};
		cmp_ok(scalar @found, '<=', $step->{at_most}, "$name, at most $step->{at_most}") or diag(join "\n", @found) if defined $step->{at_most};
	},
	check => sub {
		my ($step) = @_;
		is(sql($step->{query}), encode_utf8($step->{is}), encode_utf8($step->{check})) or diag(jobs_as_they_stand());
	});

# What the server was sent since the last `watch`, each in a line: Cluster.pm has servers log all statements. With refused, what ended in an error.
sub watched_statements
{
	my ($refused) = @_;
	my $log = PostgreSQL::Test::Utils::slurp_file($now->{node}->logfile, $now->{watched});

	return $log =~ /STATEMENT:  (.*)$/mg if $refused;
	return $log =~ /^\S+ \S+ \S+ \[\d+\] .*?LOG:  (?:statement|execute [^:]*): (.*)$/mg;
}

# The session that holds the lock is gone, if there is one.
sub end_lock
{
	my $session = delete $now->{lock};

	$session->kill_client if $session;
	return;
}

# A value in which "{text of N}" is a string of N characters, and "{list of N}" the numbers up to N.
sub expanded
{
	my ($value) = @_;

	return { map { $_ => expanded($value->{$_}) } keys %$value } if ref $value eq 'HASH';
	return [ map { expanded($_) } @$value ] if ref $value eq 'ARRAY';
	return $value if ref $value || !defined $value;
	return join '', map { chr(97 + $_ * 7 % 26) } 1 .. $1 if $value =~ /^\{text of (\d+)\}$/;
	return [ 1 .. $1 ] if $value =~ /^\{list of (\d+)\}$/;
	return $value;
}

# The lines that an entry of `enqueue` stands for: with `times`, as many, {n} in a string counted from 1.
sub repeated
{
	my ($entry) = @_;
	my %line = %{ expanded($entry) };
	my $times = delete $line{times} // 1;
	my $text = $json->encode(\%line);

	return map { my $n = $_; $json->decode($text =~ s/\{n\}/$n/gr) } 1 .. $times;
}

# Starts pgbouncer with two connections, in transaction mode, beside the server's socket; returns its port.
sub pooler
{
	return 6432 if $now->{pooler};
	my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin', '/usr/local/sbin';
	my $dir = $now->{dir};

	PostgreSQL::Test::Utils::append_to_file("$dir/pgbouncer.ini", <<"INI");
[databases]
* = host=$dir port=5432 user=$now->{user}
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = $dir
auth_type = any
pool_mode = transaction
default_pool_size = 2
ignore_startup_parameters = extra_float_digits
logfile = $dir/pgbouncer.log
INI
	$now->{pooler} = IPC::Run::start([ $pgbouncer, '-q', "$dir/pgbouncer.ini" ], '>', \my $out, '2>', \my $err);
	wait_for('pgbouncer', sub { $now->{pooler}->pump_nb; -S "$dir/.s.PGSQL.6432" });
	return 6432;
}

# Starts a proxy before the server's socket; returns the folder with its own. At SIGUSR1 it swallows what the connections of that moment send from then on,
# until the client hangs up.
sub proxy
{
	my $dir = "$now->{dir}/proxy";

	return $dir if $now->{proxy};
	mkdir $dir;
	unlink "$dir/.s.PGSQL.5432";
	my $listener = IO::Socket::UNIX->new(Local => "$dir/.s.PGSQL.5432", Listen => 50) or croak "proxy: $@";
	my $pid = fork // croak "fork: $!";
	if ($pid == 0)
	{
		pass_on($listener, "$now->{dir}/.s.PGSQL.5432");
		POSIX::_exit(0);
	}
	$alive{$pid} = $now->{proxy} = $pid;
	return $dir;
}

sub pass_on
{
	my ($listener, $server) = @_;
	my (%other, %silent);
	my $all = IO::Select->new($listener);

	local $SIG{USR1} = sub { %silent = (%silent, %other) };
	while (1)
	{
		foreach my $from ($all->can_read)
		{
			if ($from == $listener)
			{
				my $client = $listener->accept or next;
				my $there = IO::Socket::UNIX->new(Peer => $server) or next;
				@other{ $client, $there } = ($there, $client);
				$all->add($client, $there);
				next;
			}
			my $to = $other{$from} or next;
			if (sysread $from, my $bytes, 65536)
			{
				for (my $sent = 0; !$silent{$from} && $sent < length $bytes;)
				{
					$sent += syswrite($to, $bytes, length($bytes) - $sent, $sent) // last;
				}
				next;
			}
			$all->remove($from, $to);
			delete @other{ $from, $to };
			delete @silent{ $from, $to };
			close $_ foreach $from, $to;
		}
	}
	return;
}

# ---- scenarios ----

# Percentages in it stand for so many of the jobs: {98%} is 980 of 1,000.
sub read_scenarios
{
	my $jobs = $ENV{QUEUE_JOBS_CLIENT_JOBS} || 1000;
	my $text = PostgreSQL::Test::Utils::slurp_file("$root/test/clients/scenarios.json");

	$text =~ s/"\{(\d+)%\}"/$jobs * $1 \/ 100/ge;
	$text =~ s/\{(\d+)%\}/$jobs * $1 \/ 100/ge;
	return @{ $json->decode($text) };
}

# The functions of the extension that the scenario needs and that this version has not.
sub missing
{
	my ($scenario) = @_;

	return grep { $now->{node}->safe_psql('template_of_clients', "SELECT count(*) FROM pg_proc WHERE pronamespace = 'queue_jobs'::regnamespace AND proname = '$_'") eq '0' }
	  @{ $scenario->{needs} // [] };
}

sub start_pair
{
	my ($name) = @_;
	my $primary = new_node("${name}_primary", init => [ allows_streaming => 1 ], extension => 0);

	$primary->safe_psql('postgres', 'CREATE DATABASE template_of_clients');
	define_workers($primary, 'template_of_clients');
	$primary->safe_psql('postgres', "CREATE DATABASE $now->{db} TEMPLATE template_of_clients");
	$primary->backup('backup');
	$now->{standby} = PostgreSQL::Test::Cluster->new("${name}_standby");
	$now->{standby}->init_from_backup($primary, 'backup', has_streaming => 1);
	$now->{standby}->start;
	$now->{node} = $primary;
	point_to($primary);
	return;
}

# Every client that still runs ends by itself at SIGTERM. One that is restarted is killed, with the process that restarts it.
sub end_clients
{
	foreach my $name (sort keys %{ $now->{clients} })
	{
		my $client = $now->{clients}{$name};
		my $restarted = $client->{restart};
		wait_for("the start of client $name", sub { defined ended($client) || $restarted || events($client, 'started') });
		next if defined ended($client);
		kill $restarted ? 'KILL' : 'TERM', $alive{ $client->{pid} };
		wait_for("the end of client $name", sub { defined ended($client) });
		next if $restarted;
		is($client->{status}, 0, "client $name ends at SIGTERM") or diag(substr(log_of($client), -2000));
	}
	return;
}

sub run_scenario
{
	my ($scenario, $mode) = @_;
	my $since = time;

	$now->{mode} = $mode;
	$now->{clients} = {};
	$now->{db} = lc join('_', $scenario->{scenario}, $mode) =~ s/\W+/_/gr;
	if ($scenario->{pair})
	{
		start_pair("$now->{language}_$now->{db}");
	}
	elsif ($scenario->{encoding})
	{
		$now->{node}->safe_psql('postgres', "CREATE DATABASE $now->{db} TEMPLATE template0 ENCODING '$scenario->{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'");
		define_workers($now->{node}, $now->{db});
	}
	else
	{
		$now->{node}->safe_psql('postgres', "CREATE DATABASE $now->{db} TEMPLATE template_of_clients");
	}
	foreach my $step (@{ $scenario->{steps} })
	{
		my @action = grep { exists $step->{$_} } keys %steps;
		croak 'no step, or several: ' . $json->encode($step) unless @action == 1;
		$steps{ $action[0] }->($step);
	}
	end_clients();
	note(sprintf '%s, %s: %d s', $scenario->{scenario}, $mode, time - $since);
	return;
}

# What a scenario leaves, also when it has failed half-way: processes, a lock, servers other than the one that all share.
sub clear
{
	my ($node) = @_;

	foreach my $pid (keys %alive)
	{
		kill 'KILL', $alive{$pid};
		waitpid $pid, 0;
		delete $alive{$pid};
	}
	delete $now->{proxy};
	end_lock();
	if ($now->{node} != $node)
	{
		$_->stop('immediate') foreach grep { defined } $now->{node}, delete $now->{standby};
		$now->{node} = $node;
		point_to($node);
	}
	$node->start unless -e $node->data_dir . '/postmaster.pid';
	return;
}

# Runs them all, each in a database of its own, in each of its modes; QUEUE_JOBS_SCENARIO: those whose name matches.
sub run_scenarios
{
	my ($language) = @_;
	my $node = new_node($language, extension => 0);

	$node->safe_psql('postgres', 'CREATE DATABASE template_of_clients');
	$now = { language => $language, node => $node, dir => PostgreSQL::Test::Utils::tempdir_short(), user => $node->safe_psql('postgres', 'SELECT current_user') };
	define_workers($node, 'template_of_clients');
	point_to($node);
	my $wanted = $ENV{QUEUE_JOBS_SCENARIO} // '';
	foreach my $scenario (grep { $_->{scenario} =~ /$wanted/ } read_scenarios())
	{
		my @missing = missing($scenario);
		foreach my $mode (@{ $scenario->{modes} })
		{
			subtest "$language, $mode mode: $scenario->{scenario}" => sub {
				plan skip_all => "this version has no queue_jobs.$missing[0]()" if @missing;
				plan skip_all => "not yet with $language" if !grep { $_ eq $language } @{ $scenario->{clients} // [$language] };
				# Another scenario may well pass.
				eval { run_scenario($scenario, $mode); 1 } or do { diag($@); fail('the scenario went to its end') };
				clear($node);
			};
		}
	}
	if ($now->{pooler})
	{
		$now->{pooler}->signal('TERM');
		eval { $now->{pooler}->finish };
	}
	$node->stop;
	done_testing();
	return;
}

# A test that dies leaves no process behind.
END
{
	my $status = $?;
	kill 'KILL', values %alive;
	waitpid $_, 0 foreach keys %alive;
	$? = $status;
}

1;
