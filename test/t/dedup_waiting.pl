# if_waiting: what runs leave for calls that commit late, through migrate_queue(), housekeeping, a dump; claims that put jobs off; fifty open
# transactions that change one key, at all isolation levels, with savepoints and PREPARE TRANSACTION, and end in any order.
# (sql/waiting: what each call does; isolation/waiting: two calls; dedup_waiting_load: beside executors.)
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

# Without processes of the engine: only the sessions of this test touch the jobs.
my $node = new_node('waiting', conf => "shared_preload_libraries = ''\nmax_connections = 100\nmax_prepared_transactions = 60\nclient_min_messages = error");

sub sql { return $node->safe_psql('postgres', $_[0]) }

sub call
{
	my ($n, %opts) = @_;
	my $key = $opts{key} // 'k';
	my $how = $opts{how} // q{if_waiting => 'replace'};

	return "SELECT queue_jobs.enqueue('w', '{\"n\": $n}', dedup_key => '$key', $how)";
}

# Claims, and completes, what there is in the queue; returns the numbers in the args.
sub run_queue
{
	my ($queue, $db) = @_;

	return $node->safe_psql($db // 'postgres',
		"SELECT args -> 'n', queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c', '{" . ($queue // 'w') . "}', 100) ORDER BY id") =~ s/\|//gr;
}

sub kept { return $node->safe_psql($_[0] // 'postgres', q{SELECT string_agg((args -> 'n')::text, ' ' ORDER BY call) FROM queue_jobs.latest_call}) }

# A session that waits for jobs does the housekeeping, as no scheduler is there; it does so when it first looks.
sub keep_house { return $node->safe_psql($_[0] // 'postgres', q{CALL queue_jobs.wait_for_jobs('{nothing}', '1 ms')}) }

sql(q{SELECT queue_jobs.define_worker('w')});

# ---- many calls in one transaction, and what that does with the job ----

sql('BEGIN; ' . join('; ', map { call($_) } 1 .. 40) . q{; CREATE TABLE claimed AS SELECT args -> 'n' AS n, queue_jobs.complete(id, attempt) IS NOT NULL AS done FROM queue_jobs.claim('c', '{w}'); COMMIT});
is(sql('SELECT n FROM claimed'), '40', 'a claim in the transaction of 40 calls gets the latest args');

# ---- one call stays open while others run ----

my $early = in_background($node);
$early->query('BEGIN; ' . call(0));
sql(call($_)), run_queue() foreach 1 .. 40;
is(kept(), '40', 'beside an open call one run keeps its args: the latest');
keep_house();
is(kept(), '40', '… which housekeeping leaves alone');
$early->query('COMMIT');
keep_house();
is(kept(), '40', '… also when the early call has committed, and its job waits');
is(run_queue(), '40', 'the run of the early job has the latest args');
keep_house();
is(kept(), '', '… and nothing is kept when that has ended');

$early->query('BEGIN; ' . call(0));
sql(call(1)), run_queue();
$early->query('ROLLBACK');
keep_house();
is(kept(), '', 'nothing is kept for an early call that was rolled back');

$early->query('BEGIN; ' . call(0) . "; PREPARE TRANSACTION 'early'");
sql(call(1)), run_queue();
keep_house();
is(kept(), '1', 'it is kept for a call that is prepared');
sql(q{COMMIT PREPARED 'early'});
is(run_queue(), '1', '… which has the latest args');
keep_house();
is(kept(), '', '… and forgotten then');

my $claimant = in_background($node);
$early->query('BEGIN; ' . call(0));
$claimant->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
sql(call(1)), run_queue();
sql(call(2));
is($claimant->query(q{SELECT args -> 'n', queue_jobs.complete(id, attempt) FROM queue_jobs.claim('c', '{w}')}), '2|', 'a claim with an old snapshot');
$claimant->query('COMMIT');
$early->query('COMMIT');
is(run_queue(), '2', '… keeps its args as well');
keep_house();
is(kept(), '', '… and housekeeping deletes all of them');

# ---- migrate_queue() ----

$early->query('BEGIN; ' . call(0));
my $earlier = in_background($node);
sql(call(1)), run_queue();
$early->query('COMMIT');
is(sql(q{SELECT queue_jobs.migrate_queue('w', 'there')}), '1', 'the early job goes to another queue');
is(run_queue('there'), '1', '… with the args of the later run');
keep_house();
is(kept(), '', '… which are kept in neither queue when it has run');

# one stays, as it is still open
$early->query('BEGIN; ' . call(0));
$earlier->query('BEGIN; ' . call(1));
sql(call(2)), run_queue();
$early->query('COMMIT');
is(sql(q{SELECT queue_jobs.migrate_queue('w', 'there')}), '1', 'one of two early jobs is moved');
$earlier->query('COMMIT');
is(run_queue('there') . ' ' . run_queue(), '2 2', 'the runs of both have the latest args');
keep_house();
is(kept(), '', '… which are forgotten then');

# ---- dump and restore ----

$early->query('BEGIN; ' . call(0));
sql(call(1)), run_queue();
$early->query('COMMIT');
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'pg_dump');
sql('CREATE DATABASE restored');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('restored'), $dump ], 'pg_restore');
is(kept('restored'), '1', 'a dump has what was kept');
keep_house('restored');
is(kept('restored'), '1', '… which a restored job needs');
is(run_queue('w', 'restored'), '1', '… and gets');
keep_house('restored');
is(kept('restored'), '', '… and then it is forgotten');
is(run_queue(), '1', 'as here');

# ---- a claim puts off what later calls have put off, a bounded number ----

my @ids = split /\n/, sql(join '; ', map { call(0, key => "d $_", how => q{if_waiting => 'debounce', delay => '1 ms'}) } 1 .. 20);
sql(join '; ', map { call(1, key => "d $_", how => q{if_waiting => 'debounce', delay => '1 day'}) } 1 .. 20);
wait_until($node, q{SELECT bool_and(clock_timestamp() > created_at + interval '5 ms') FROM queue_jobs.job WHERE dedup_key LIKE 'd %'});
$claimant->query('BEGIN');
is($claimant->query(q{SELECT count(*) FROM queue_jobs.claim('c', '{w}', 3)}), '0', 'no job that was put off is claimed');
my %there = map { $_ => 1 } @ids;
my $changed = grep { $there{$_} } split /\n/, sql(join '; ', map { call(2, key => "d $_", how => q{if_waiting => 'debounce', delay => '1 day'}) } 1 .. 20);
cmp_ok($changed, '>=', 17, '… and a claim of three jobs holds no more than three of them');
$claimant->query('COMMIT');
is(run_queue(), '', 'nor later');
sql(call(3, key => 'due'));
is(run_queue(), '3', 'a job that is due is claimed beside them');
sql(q{SELECT queue_jobs.remove_jobs('w')});

# Many of them: what the claims walk over does not grow with the square of their number.
my $many = 1500;
my $put_off = q{SELECT count(queue_jobs.enqueue('w', dedup_key => 'many ' || n, if_waiting => 'debounce', delay => '%s')) FROM generate_series(1, } . $many . ') n';
sql(sprintf $put_off, '1 ms');
sql(sprintf $put_off, '1 day');
wait_until($node, q{SELECT bool_and(clock_timestamp() > created_at + interval '5 ms') FROM queue_jobs.job WHERE dedup_key LIKE 'many %'});
my $read = q{SELECT idx_tup_read FROM pg_stat_all_indexes WHERE indexrelname = 'live_job_future'};
my $before = sql('SELECT pg_stat_force_next_flush(); ' . $read) =~ s/^\n//r;
$claimant->query(q{SELECT count(*) FROM queue_jobs.claim('c', '{w}')}) foreach 1 .. 200;
$claimant->query('SELECT pg_stat_force_next_flush()');
$claimant->query('SELECT 1');
cmp_ok(sql($read) - $before, '<', 50 * $many, "200 claims beside $many jobs that were put off walk over each a bounded number of times");
is(sql(q{SELECT count(*) FROM queue_jobs.job WHERE dedup_key LIKE 'many %' AND state = 'scheduled'}), $many, '… and claim none');
sql(q{SELECT queue_jobs.remove_jobs('w')});

# ---- a job that is due, and that a later call has put off ----

my $due = $early->query('BEGIN; ' . call(0));
sql(call(1, how => q{if_waiting => 'debounce', delay => '1 day'}));
$early->query('COMMIT');
is(run_queue(), '', 'a later call puts off what is due');
my $reason = sql("SELECT reason, detail FROM queue_jobs.explain_job($due)
	WHERE reason IN ('put_off', 'starting')");
like($reason, qr/^put_off\|a later call for its deduplication key has put it off until \d{4}-/, '… as explain_job() says');
is(sql("SELECT waits_for FROM queue_jobs.job WHERE id = $due"), $reason =~ s/^put_off\|//r, '… and the view');
sql(q{SELECT queue_jobs.remove_jobs('w')});

# ---- fifty open transactions, which end in any order ----

foreach my $seed (1 .. 3)
{
	srand($seed);
	my (@open, @wrong, @failed);
	my ($latest, $last) = (0, '');
	my $look = sub {
		foreach (grep { $_ ne '' } split /\n/, run_queue())
		{
			push @wrong, "$_ instead of $latest" if $_ != $latest;
			$last = $_;
		}
	};

	sql(call(0)) if $seed > 1;		# one that waits already
	foreach my $n (1 .. 50)
	{
		my $session = in_background($node);
		my $level = ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')[ int(rand(3)) ];

		$session->query("BEGIN ISOLATION LEVEL $level; SELECT 1");
		$session->query('SAVEPOINT s; ' . call(-$n) . '; ROLLBACK TO s') if rand() < 0.3;
		$session->query('SAVEPOINT s; ' . call($n) . '; RELEASE s');
		push @failed, $session->error if $session->error ne '';
		push @open, { n => $n, session => $session };
	}
	while (@open)
	{
		my ($one) = splice @open, int(rand(@open)), 1;
		my ($n, $session) = @$one{qw(n session)};
		my $commits = rand() < 0.6;
		my $end = $commits ? 'COMMIT' : 'ROLLBACK';

		if ($session && rand() < 0.3)
		{
			$session->query("PREPARE TRANSACTION 'n $n'");
			push @open, { n => $n };
		}
		else
		{
			$session ? $session->query($end) : sql("$end PREPARED 'n $n'");
			$latest = $n if $commits && $n > $latest;
		}
		push @failed, $session->error if $session && $session->error ne '';
		$session->quit if $session;
		$look->() if rand() < 0.4;
	}
	$look->() foreach 1 .. 60;
	is("@failed", '', "fifty open transactions, seed $seed: no call failed, and no end of a transaction");
	is("@wrong", '', '… each run had the latest args that were committed');
	is($last, $latest, '… and so had the last one');
	is(sql(q{SELECT count(*) FROM queue_jobs.job WHERE worker = 'w' AND state NOT IN ('completed', 'cancelled')}), '0', '… and no job is left');
	keep_house();
	is(kept(), '', '… and no args are kept');
}

$_->quit foreach $early, $earlier, $claimant;
$node->stop;
done_testing();
