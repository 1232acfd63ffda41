# Prometheus scrapes a server by the dashboard's /metrics, prometheus-postgres-exporter and
# prometheus-sql-exporter, configured as monitoring/ says. Each query of the Grafana dashboard has a value by
# each of them, and each alert fires when its case is brought about, and stops.
#
# Overridden are the addresses, and what would make it wait: intervals, "for", the alerts' limits.
use strict;
use warnings;

use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $root = $ENV{TESTDIR} // '.';
my $folder = "$root/monitoring";
my $work = PostgreSQL::Test::Utils::tempdir();
my %programs;
$ENV{PATH} = join ':', $ENV{MONITORING_PROGRAMS} || die("MONITORING_PROGRAMS is not set: make test does\n"), $ENV{PATH};
delete @ENV{qw(http_proxy HTTP_PROXY all_proxy ALL_PROXY)};

# ---- a server with jobs of every kind ----

my $node = new_node('monitored', init => [ allows_streaming => 1 ], conf => <<'CONF');
queue_jobs.max_executors = 4
queue_jobs.max_executors_per_database = 3
queue_jobs.max_executors_per_role = 3
wal_receiver_status_interval = 1
wal_retrieve_retry_interval = 200ms
CONF
define_gated($node);
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE prometheus LOGIN;
GRANT pg_monitor TO prometheus;
CREATE FUNCTION fails(n int) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
CREATE FUNCTION seen(args jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$ SELECT args $$;
CREATE FUNCTION tells(args jsonb, read jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT read $$;
CREATE FUNCTION work() RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT '{"n": 0}'::jsonb FROM generate_series(1, 2) WHERE NOT EXISTS (SELECT FROM ran WHERE n = 0) $$;
SELECT queue_jobs.define_worker('dies', 'public.fails', max_retries => 0), queue_jobs.define_worker('dies outside', 'public.fails', max_retries => 0, external_dependencies => true), queue_jobs.define_worker('fails', 'public.fails'),
       queue_jobs.define_worker('urgent', urgency => 'high'), queue_jobs.define_worker('unhurried'), queue_jobs.define_worker('whenever', 'public.quick', urgency => 'throttled'),
       queue_jobs.define_worker('once', idempotent => true), queue_jobs.define_worker('limited', 'public.quick', max_running_jobs => 2, feature_category => 'tests'),
       queue_jobs.define_worker('capacity', 'public.quick', max_running_jobs => 1, remaining_work => 'SELECT public.work()'),
       queue_jobs.define_worker('reads', 'public.tells', read_handler => 'public.seen', data_consistency => 'delayed'),
       queue_jobs.define_worker(E'quoted "\\" {worker}', 'public.quick', resource_boundary => 'cpu', external_dependencies => true, namespace => 'odd'),
       queue_jobs.define_worker('paused'), queue_jobs.define_worker('off');
SELECT queue_jobs.pause('paused'), queue_jobs.disable_worker('off'), queue_jobs.schedule('yearly', '0 0 1 1 *', 'quick', '{"n": 0}');
SELECT queue_jobs.enqueue('once'), queue_jobs.try_enqueue('once'), queue_jobs.cancel(queue_jobs.enqueue('paused')),
       queue_jobs.enqueue('paused', delay => '1 day'), queue_jobs.enqueue('fails', '{"n": 0}'), queue_jobs.new_batch('open', open => true);
SELECT queue_jobs.snooze(id, attempt, '1 day') FROM queue_jobs.claim('test', '{once}');
SQL
$node->safe_psql('postgres', 'CREATE DATABASE second');
$node->safe_psql('second', 'CREATE EXTENSION queue_jobs');
my $quoted = 'quoted "\" {worker}';

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('near');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->safe_psql('postgres', "SELECT queue_jobs.add_replica('near', 'host=" . $standby->host . ' port=' . $standby->port . " dbname=postgres user=prometheus')");

# A little of everything, so that no rate is of nothing.
sub some_load
{
	$node->safe_psql('postgres', q{SELECT queue_jobs.enqueue(name, '{"n": 1}') FROM queue_jobs.worker
		WHERE name IN ('quick', 'whenever', 'limited', 'fails', 'reads') OR name LIKE 'quoted%'});
	return;
}

# ---- the programs ----

# Starts a program that ends with us at the latest. What it prints is in $work/NAME.log.
sub start_program
{
	my ($name, @command) = @_;

	$programs{$name} = IPC::Run::start([ 'setpriv', '--pdeathsig', 'KILL', '--', @command ], '<', \undef, '>', "$work/$name.log", '2>&1');
	return;
}

# Waits until the sub returns something true, and returns that.
sub wait_for
{
	my ($what, $look) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;

	while (time <= $end)
	{
		my $found = $look->();
		return $found if $found;
		select undef, undef, undef, 0.2;
	}
	diag("$_: " . join '', grep { defined } (split /^/, slurp_file("$work/$_.log"))[-5 .. -1]) for sort keys %programs;
	die "gave up waiting for: $what\n";
}

# A file of monitoring/ with what is replaced in it, each at least once.
sub adapt
{
	my ($file, %replaced) = @_;
	my $text = slurp_file("$folder/$file");

	for my $pattern (keys %replaced)
	{
		die "$file: no $pattern" unless $text =~ s/$pattern/$replaced{$pattern}/g;
	}
	append_to_file("$work/$file", $text);
	return "$work/$file";
}

my %port = map { $_ => PostgreSQL::Test::Cluster::get_free_port() } qw(postgres_exporter sql_exporter prometheus);

my $output;
IPC::Run::run([ 'make', '-s', '-C', "$root/web", 'queue_jobs_web' ], '>', \$output, '2>&1') or die "the dashboard cannot be built: $output";
{
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGUSER => 'prometheus',
		DATA_SOURCE_NAME => 'user=prometheus dbname=postgres sslmode=disable host=' . $node->host . ' port=' . $node->port,
		LOGLEVEL => 'warn', QUEUE_JOBS_URL => 'postgres://prometheus@/postgres?sslmode=disable&host=' . $node->host . '&port=' . $node->port);
	start_program('queue_jobs_web', "$root/web/queue_jobs_web", '--listen=127.0.0.1:0');
	start_program('postgres_exporter', 'prometheus-postgres-exporter', "--web.listen-address=127.0.0.1:$port{postgres_exporter}",
		"--extend.query-path=$folder/postgres_exporter.yaml", '--disable-default-metrics', '--disable-settings-metrics',
		'--auto-discover-databases', '--exclude-databases=template0,template1');
	start_program('sql_exporter', 'prometheus-sql-exporter', '-web.listen-address', "127.0.0.1:$port{sql_exporter}", '-config.file', adapt('sql_exporter.yaml', '15s' => '1s'));
}
($port{queue_jobs_web}) = wait_for('the dashboard', sub { slurp_file("$work/queue_jobs_web.log") =~ /listens on http:\/\/127\.0\.0\.1:(\d+)/ ? $1 : undef });

adapt('alerts.yml', 'for: \d+m' => 'for: 1s', '> 10\)' => '> 5)', '> 60\b' => '> 5', '> 3600' => '> 5', '30m\]' => '30s]');
my $config = adapt('prometheus.yml', '15s' => '1s',
	'localhost:8480' => "127.0.0.1:$port{queue_jobs_web}", 'localhost:9187' => "127.0.0.1:$port{postgres_exporter}", 'localhost:9237' => "127.0.0.1:$port{sql_exporter}");
start_program('prometheus', 'prometheus', "--config.file=$config", "--storage.tsdb.path=$work/tsdb", "--web.listen-address=127.0.0.1:$port{prometheus}");

# ---- asking Prometheus ----

sub encoded { return join '&', map { my $v = $_[0]{$_}; utf8::encode($v); "$_=" . $v =~ s/([^\w.-])/sprintf '%%%02X', ord $1/ger } keys %{ $_[0] } }

# What its API says; undef if it does not answer yet.
sub prometheus
{
	my ($path, %parameters) = @_;
	my $answer = HTTP::Tiny->new(timeout => 60)->get("http://127.0.0.1:$port{prometheus}/api/v1/$path?" . encoded(\%parameters));

	return undef unless $answer->{success} || $answer->{status} == 400;
	$answer = decode_json($answer->{content});
	die "$path: $answer->{error}\n" unless $answer->{status} eq 'success';
	return $answer->{data};
}

# The values of an expression, those that are numbers.
sub values_of
{
	my ($expression) = @_;
	my $data = prometheus('query', query => $expression) // { result => [] };

	return grep { $_->{value}[1] ne 'NaN' } @{ $data->{result} };
}

# A test that waits until what the first sub returns is what the second one does: when a scrape is slow a
# series has no value for a moment.
sub becomes
{
	my ($look, $expect, $name) = @_;
	my ($found, $expected);

	eval { wait_for($name, sub { ($found, $expected) = ($look->(), $expect->()); $found eq $expected }) };
	is($found, $expected, $name);
	return;
}

my @sources = qw(queue_jobs_web postgres_exporter sql_exporter);
wait_for("metrics by $_", sub { values_of("queue_jobs_info{job='$_'}") }) for @sources;

# ---- the metrics ----

# Of each source, all that the view has, and under its name.
sub lines { return join "\n", sort @_ }
wait_until($node, q{SELECT lag IS NOT NULL FROM queue_jobs.replica}, meanwhile => \&some_load);
sub samples { return split /\n/, $node->safe_psql('postgres', 'SELECT name, count(*) FROM queue_jobs.metric GROUP BY name') }
for my $source (@sources)
{
	my $all = sub { lines(map { "$_->{metric}{__name__}|$_->{value}[1]" } values_of("count by (__name__) ({job='$source', __name__=~'queue_jobs_.+', database!='second'})")) };
	becomes($all, sub { lines(samples()) }, "$source: each sample of the view arrives");
	becomes(sub { join ' ', map { $_->{metric}{worker} } values_of("queue_jobs_disabled{job='$source', resource_boundary='cpu'}") }, sub { $quoted }, '… labels are as they are');
}

becomes(sub { join ' ', sort map { $_->{metric}{database} } values_of("queue_jobs_info{job='postgres_exporter'}") }, sub { 'postgres second' }, 'postgres_exporter finds each database');

my %documented = map { $_ => 1 } slurp_file("$root/docs/reference/metrics.md") =~ /`(queue_jobs_\w+)`/g;
is(join(' ', grep { !$documented{$_} && !$documented{ s/_(?:bucket|sum|count)$//r } } map { s/\|.*//r } samples()), '', 'each is in docs/reference/metrics.md');

my $text = HTTP::Tiny->new->get("http://127.0.0.1:$port{queue_jobs_web}/metrics")->{content};
# GitLab's name of this gauge ends as promtool wants only histograms' to end.
my $gauge = 'queue_jobs_limited_capacity_worker_remaining_work_count';
ok($text =~ s/^.*\b$gauge\b.*\n//mg, "$gauge is there");
ok(IPC::Run::run([ 'promtool', 'check', 'metrics' ], '<', \$text, '>', \$output, '2>&1') && $output eq '', 'promtool has nothing to say of /metrics') or diag $output;

# As CloudNativePG reads: in a read-only transaction, a member of pg_monitor alone.
my ($custom) = slurp_file("$folder/cloudnative-pg.yaml") =~ /query: \|\n(.*?)\n +metrics:/s;
my ($status, $rows, $error) = $node->psql('postgres', "BEGIN READ ONLY; SELECT count(*) FROM ($custom) q; COMMIT", extra_params => [ '-U', 'prometheus' ]);
is("$error$rows", $node->safe_psql('postgres', 'SELECT count(*) FROM queue_jobs.metric'), "CloudNativePG's query can be run as it does");

# ---- the Grafana dashboard ----

my $dashboard = decode_json(slurp_file("$folder/grafana.json"));
for my $source (@sources)
{
	my %variable = (instance => "127.0.0.1:$port{$source}", database => '.*', queue => '.*', __rate_interval => '1m');
	my $filled = sub { $_[0] =~ s/\$(\w+)/$variable{$1} \/\/ die "no variable $1"/ger };
	my @without;

	for my $panel (@{ $dashboard->{panels} })
	{
		for my $target (@{ $panel->{targets} // [] })
		{
			my $expression = $filled->($target->{expr});
			eval { wait_for($expression, sub { values_of($expression) or some_load() }) } or push @without, "$panel->{title}: $expression$@";
		}
	}
	is(join("\n", @without), '', "$source: each panel has values");
	for my $variable (grep { $_->{type} eq 'query' } @{ $dashboard->{templating}{list} })
	{
		my ($series, $label) = $variable->{definition} =~ /^label_values\((.*), (\w+)\)$/;
		ok(eval { wait_for($variable->{name}, sub { grep { exists $_->{metric}{$label} } values_of($filled->($series)) }) }, "… and the variable $variable->{name}");
	}
}

# ---- the alerts ----

# The sources by which the alert fires.
sub firing
{
	my ($alert) = @_;
	my $data = prometheus('alerts') // return '?';
	my %instance = map { $_->{labels}{instance} => 1 } grep { $_->{labels}{alertname} eq $alert && $_->{state} eq 'firing' } @{ $data->{alerts} };

	return join ' ', sort keys %instance;
}
my $by_all = join ' ', sort map { "127.0.0.1:$port{$_}" } @sources;

# Brings the alert's case about, and ends it.
#   meanwhile  what has to go on for as long as it is to last
sub test_alert
{
	my ($alert, $begin, $end, %options) = @_;

	$begin->();
	wait_for("$alert fires", sub { ($options{meanwhile} // sub { })->(); firing($alert) eq $by_all });
	pass("$alert fires");
	$end->();
	wait_for("$alert stops", sub { ($options{afterwards} // sub { })->(); firing($alert) eq '' });
	pass('… and stops');
	return;
}

sub sql { my ($sql) = @_; return sub { $node->safe_psql('postgres', $sql) } }

test_alert('QueueJobsLateHighUrgency', sql(q{SELECT queue_jobs.enqueue('urgent')}), sql(q{SELECT queue_jobs.complete(id, attempt) FROM queue_jobs.claim('test', '{urgent}')}));
test_alert('QueueJobsLateLowUrgency', sql(q{SELECT queue_jobs.enqueue('unhurried')}), sql(q{SELECT queue_jobs.pause('unhurried')}));
test_alert('QueueJobsBroken', sql(q{SELECT queue_jobs.define_worker('breaks', 'public.fails', break_after => 1, break_for => '1 hour'); SELECT queue_jobs.enqueue('breaks', '{"n": 0}')}), sql(q{SELECT queue_jobs.close_breaker('breaks')}));
test_alert('QueueJobsDead', sub { }, sub { }, meanwhile => sql(q{SELECT queue_jobs.enqueue('dies', '{"n": 0}')}));
test_alert('QueueJobsDeadExternalDependencies', sub { }, sub { }, meanwhile => sql(q{SELECT queue_jobs.enqueue('dies outside', '{"n": 0}')}));

my $session = in_background($node);
test_alert('QueueJobsSnapshotHeld', sub { $session->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1') }, sub { $session->query('COMMIT') });
$session->quit;

test_alert('QueueJobsExecutorsBusy', sql(q{SELECT queue_jobs.enqueue('gated', '{"n": 7}') FROM generate_series(1, 4)}), sql('INSERT INTO gate VALUES (7)'));

# The server asks its replicas when a job wants to read from one.
my $reads = sql(q{SELECT queue_jobs.enqueue('reads', '{"n": 1}')});
test_alert('QueueJobsReplicaAway', sub { $standby->stop('immediate') }, sub { $standby->start }, meanwhile => $reads, afterwards => $reads);

test_alert('QueueJobsScheduleLate', sql(q{ALTER DATABASE postgres SET queue_jobs.run = off; SELECT queue_jobs.schedule('often', 'every 1 second', 'quick', '{"n": 0}')}),
	sql('ALTER DATABASE postgres RESET queue_jobs.run'));

my @rules = map { @{ $_->{rules} } } @{ prometheus('rules')->{groups} };
is(join(' ', map { $_->{name} } grep { $_->{health} ne 'ok' } @rules), '', 'all rules could be evaluated all the time');
is(scalar @rules, scalar(my @tested = slurp_file(__FILE__) =~ /^test_alert\('/mg), 'and all have been tested');

END
{
	local $?;
	$_->kill_kill for values %programs;
}
$standby->stop;
$node->stop;
done_testing();
