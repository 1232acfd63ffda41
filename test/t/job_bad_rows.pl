# A superuser restores a dump that has been edited by hand, or is damaged: each of its rows is bad in another way. Such a row harms its own worker, job or
# schedule at most: no process crashes, other jobs run, and the views can be read.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('rows', conf => "queue_jobs.idle_timeout = '300ms'\nqueue_jobs.max_executors_per_role = 2\n");
define_gated($node);
$node->safe_psql('postgres', <<'SQL');
SELECT queue_jobs.define_worker('bad', 'public.quick', max_retries => 1, keep_completed => '0');
SELECT queue_jobs.define_worker('outside');
SELECT queue_jobs.enqueue('outside') FROM generate_series(1, 3);
CREATE TABLE template_worker AS SELECT * FROM queue_jobs.defined_worker WHERE name = 'bad';
SELECT queue_jobs.enqueue('bad', '{"n": 0}', delay => '1 day');
CREATE TABLE template_job AS SELECT * FROM queue_jobs.live_job WHERE lane = (SELECT id FROM queue_jobs.lane WHERE worker = 'bad');
UPDATE template_job SET due = true, run_at = now();
CREATE TABLE template_lane AS SELECT * FROM queue_jobs.lane WHERE worker = 'bad';
SELECT queue_jobs.schedule('bad', 'every 1 second', 'bad', '{"n": 0}');
CREATE TABLE template_schedule AS SELECT * FROM queue_jobs.defined_schedule;
SELECT queue_jobs.unschedule('bad');
SQL

my %table = (worker => 'defined_worker', job => 'live_job', lane => 'lane', schedule => 'defined_schedule');
my $long = q{repeat('x', 3000)};
my @bad = (
	# lanes, each with a job in it
	(map { [ lane => $_ ] } ("id = -5", "owner = 4000000000", "worker = $long", "queue = ''", "worker = 'queue_jobs.heal'")),
	(map { [ job => $_ ] } ("id = -1", "lane = 12345", "place = -12345", "priority = -2147483648", "attempt = -1, uncharged = 2147483647", "crashes = 32767", "due = false, run_at = '-infinity'", "expires_at = '-infinity'",
			"started_at = now(), lease = 9223372036854775807, claimed_by = 4000000000", "strategy = 'nonsense'", "context = '[1]', errors = '[{}]'", "args = 'null'")),
	(map { [ worker => $_ ] } ("definer = 4000000000", "handler = ''", "handler_arguments = 'x'", "deduplicate = 'x'", "max_retries = -1", "weight = 0", "concurrency_key = 'n', concurrency_limit = -1",
			"rate_limit = 2147483647, rate_period = '178000000 years'", "tags = '{NULL}'", "loggable_args = '{NULL}'", "timeout = '-1 s'", "record = 'x', record_key = 'n'", "heal_every = '178000000 years', heal_after = '178000000 years'",
			"keep_completed = '178000000 years'", "search_path = ''")),
	(map { [ schedule => $_ ] } ("owner = 4000000000", "cron = 'x'", "worker = 'queue_jobs.command', args = '[]'", "if_running = 'x'", "next_run = 'infinity'", "waiting = '-infinity'", "last_job = -1")));
my @other = (
	"INSERT INTO queue_jobs.claimed_slot VALUES (0, -1, -1), (9223372036854775807, 9223372036854775807, 2147483647)",
	"INSERT INTO queue_jobs.token VALUES (0, '', NULL, '-infinity'), (4000000000, $long, '1', 'infinity')",
	"INSERT INTO queue_jobs.dead_job SELECT -1, -1, 12345, 0, -1, -1, -1, -1, -1, -1, -1, 1, NULL, 'x', 'infinity', '-infinity', 'infinity', '-infinity', 'infinity', NULL, NULL, NULL, 'x', 'x', '1', '1', '1', '1'",
	"DELETE FROM queue_jobs.hash_seed");

my $n = 0;
my @wrong;

# Whether the queue goes on.
sub look
{
	my ($name) = @_;
	my ($status, $out, $err) = $node->psql('postgres', "SELECT queue_jobs.enqueue('quick', '{\"n\": " . ++$n . "}')");

	$status = 1 if $status == 0 && !$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM ran WHERE n = $n");
	my ($seen, undef, $seen_error) = $node->psql('postgres', q{\o /dev/null
SELECT * FROM queue_jobs.job; SELECT * FROM queue_jobs.queue; SELECT * FROM queue_jobs.worker; SELECT * FROM queue_jobs.schedule; SELECT * FROM queue_jobs.worker_statistics;
SELECT e.* FROM queue_jobs.live_job l, queue_jobs.explain_job(l.id) e; SELECT * FROM queue_jobs.check_workers();
BEGIN; SELECT queue_jobs.claim('me', '{*}', 100); ROLLBACK;}, on_error_stop => 1);
	push @wrong, "$name: " . ($status ? "stopped $err" : '') . ($seen ? $seen_error : '') if $status || $seen;
}

foreach (@bad)
{
	my ($kind, $change) = @$_;
	my $table = "queue_jobs.$table{$kind}";
	my $sql = "BEGIN; UPDATE template_$kind SET $change; ";

	$sql .= "DELETE FROM $table WHERE name = 'bad'; " if $kind eq 'worker';
	$sql .= "DELETE FROM queue_jobs.live_job WHERE lane NOT IN (SELECT id FROM queue_jobs.lane WHERE worker = 'outside'); ";
	$sql .= "DELETE FROM queue_jobs.lane WHERE worker <> 'outside' AND id NOT IN (SELECT lane FROM queue_jobs.live_job); INSERT INTO queue_jobs.lane SELECT * FROM template_lane t WHERE NOT EXISTS (SELECT FROM queue_jobs.lane l WHERE l.id = t.id); " if $kind eq 'job';
	$sql .= "INSERT INTO $table SELECT * FROM template_$kind t" . ($kind eq 'lane' ? ' WHERE NOT EXISTS (SELECT FROM queue_jobs.lane l WHERE l.id = t.id)' : '') . '; ';
	$sql .= "INSERT INTO queue_jobs.live_job SELECT (json_populate_record(j, json_build_object('id', nextval('queue_jobs.job_id'), 'lane', l.id, 'place', l.id))).* FROM template_job j, template_lane l; " if $kind eq 'lane' || $kind eq 'worker';
	my ($status, undef, $err) = $node->psql('postgres', "CREATE TEMPORARY TABLE was AS SELECT * FROM template_$kind;
		SELECT set_config('search_path', 'public', false); $sql DELETE FROM template_$kind; INSERT INTO template_$kind SELECT * FROM was; COMMIT;", on_error_stop => 1);

	is($status, 0, "$kind: $change") or diag $err;
	look("$kind: $change");
	$node->psql('postgres', "DELETE FROM $table WHERE " . ($kind eq 'job' || $kind eq 'lane' ? "true; DELETE FROM queue_jobs.live_job" : $kind eq 'worker' ? "name = 'bad'; INSERT INTO $table SELECT * FROM template_worker" : 'true'));
}
foreach (@other)
{
	$node->safe_psql('postgres', $_);
	look($_);
}
is(join("\n", @wrong), '', 'whatever row is bad: other jobs run, and the views can be read');
my $log = slurp_file($node->logfile);
unlike($log, qr/was terminated by signal|PANIC|invalid memory alloc|cache lookup failed|unrecognized|unexpected/, 'no process crashed, nor was surprised');
$node->stop;
done_testing();
