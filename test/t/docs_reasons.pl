# Each reason of explain_job() is brought about by a test and explained in docs/how-to/operations.md: here are those that no test beside it brings about.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $root = $ENV{TESTDIR} // '.';
my $node = new_node('reasons');
my %seen;

# The first reason of a job.
sub is_first
{
	my ($reason, $job, $what, %opts) = @_;

	my $condition = "SELECT reason = '$reason' FROM queue_jobs.explain_job($job) WHERE n = 1";
	ok(wait_until($opts{node} // $node, $condition), "$reason: $what");
	$seen{$reason} = 1;
	return;
}

define_gated($node);
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE locked ();
CREATE FUNCTION locking() RETURNS void LANGUAGE sql AS 'SELECT FROM public.locked';
SELECT queue_jobs.define_worker('locking', 'public.locking'), queue_jobs.define_worker('out'), queue_jobs.define_worker('dropped');
SQL

is_first('no_worker', $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('dropped'); SET client_min_messages = error; SELECT FROM queue_jobs.drop_worker('dropped')}),
	'its worker has been dropped');

my $holder = in_background($node);
$holder->query('BEGIN; LOCK TABLE locked');
my $blocked = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('locking')});
ok(wait_until($node, "SELECT bool_or(reason = 'blocked') FROM queue_jobs.explain_job($blocked)"), 'blocked: it waits for a lock');
$seen{blocked} = 1;
$holder->query('COMMIT');

$node->safe_psql('postgres', q{SELECT queue_jobs.define_limit('tap'), queue_jobs.define_worker('tapped', limits => '{tap}'), queue_jobs.close_limit('tap', '1 h')});
is_first('limit_closed', $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('tapped')}), 'its limit is closed');

my $lapsed = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('out'); SELECT FROM queue_jobs.claim('me', '{out}', 1, '1 ms')});
ok(wait_until($node, "SELECT bool_or(reason = 'lease_lapsed') FROM queue_jobs.explain_job($lapsed)"), 'lease_lapsed: its claimant has not completed it in time');
$seen{lease_lapsed} = 1;
my $beside = $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('out')});
is($node->safe_psql('postgres', 'SELECT string_agg(format($$%s %s$$, id, left(waits_for, 21)), E\'\\n\' ORDER BY id) FROM queue_jobs.job WHERE worker = $$out$$'),
	"$lapsed the lease of claimant\n$beside worker \"out\" has no h", 'which the view shows of that job, and not of the next one of its lane');

# (explain_job() looks with a snapshot of its own; the view shows the row that its query sees.)
my $old = in_background($node);
my $changed = $node->safe_psql('postgres', q{SELECT FROM queue_jobs.pause('out'); SELECT queue_jobs.enqueue('out')});
$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$node->safe_psql('postgres', "SELECT queue_jobs.change_job($changed, priority => 7)");
like($old->query("SELECT waits_for FROM queue_jobs.job WHERE id = $changed"), qr/^it has been started, changed or ended since/, 'changed: it has been, since the query began');
$seen{changed} = 1;
$old->query('COMMIT');

is($node->safe_psql('postgres', q{BEGIN; SELECT queue_jobs.enqueue('quick', '{"n": 1}') AS job \gset
SELECT reason FROM queue_jobs.explain_job(:job) WHERE n = 1; ROLLBACK}), 'starting', 'starting: nothing keeps it');
$seen{starting} = 1;

my $restore = in_background($node);
$restore->query('INSERT INTO queue_jobs.live_job SELECT * FROM queue_jobs.live_job WHERE false');
is_first('restore', $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 2}')}), 'a session writes the tables as a restore does');
$restore->quit;

$node->safe_psql('postgres', 'ALTER DATABASE postgres SET queue_jobs.run = off');
wait_for_no_processes($node, 'postgres');
is_first('run_off', $node->safe_psql('postgres', q{SELECT queue_jobs.enqueue('quick', '{"n": 3}')}), 'the engine is off in the database');
$node->stop;

$node = new_node('plain', conf => "shared_preload_libraries = ''");
$node->safe_psql('postgres', q{SET client_min_messages = error; CREATE FUNCTION quick(n int) RETURNS void LANGUAGE sql AS ''; SELECT queue_jobs.define_worker('quick', 'public.quick')});
is_first('not_preloaded', $node->safe_psql('postgres', q{SET client_min_messages = error; SELECT queue_jobs.enqueue('quick', '{"n": 1}')}), 'without shared_preload_libraries');
$node->stop;

# ---- all that there are in the source ----

sub text
{
	return join '', map { slurp_file($_) } @_;
}

my %words = map { $_ => 1 } text("$root/src/catalog/wait_reasons.h") =~ /^WAIT_REASON\(\w+, "(\w+)"/mg;
cmp_ok(scalar keys %words, '>=', 34, 'the words in the source');

# In expected output it is a cell of its own, in a TAP file it stands beside the call, or in the line after it.
my $expected = text("$root/expected/explain.out", "$root/expected/options.out", "$root/expected/workflow.out", "$root/test/isolation/expected/explain.out");
my @calls = map { slurp_file($_) =~ /(.*explain_job.*\n.*)/g } grep { !/docs_reasons/ } glob "$root/test/t/*.pl";
my $docs = slurp_file("$root/docs/how-to/operations.md");
foreach my $word (sort keys %words)
{
	ok($seen{$word} || $expected =~ /(?:^|\|) *$word *(?:\||$)/m || grep({ /\b$word\b/ } @calls), "$word: a test brings it about");
	ok($docs =~ /`$word`/, "$word: documented");
}
done_testing();
