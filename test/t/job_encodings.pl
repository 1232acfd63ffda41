# Databases and clients of other encodings: the extension is made, updated and used there, and each of its messages arrives.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('encodings', conf => 'queue_jobs.max_executors = 4');

for my $encoding (qw(EUC_JP EUC_KR EUC_CN LATIN1 SQL_ASCII))
{
	my $db = lc $encoding;
	$node->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE template0 ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C'");
	# The update script is converted, too.
	$node->safe_psql($db, q{CREATE EXTENSION queue_jobs VERSION '0.1.0'; ALTER EXTENSION queue_jobs UPDATE; DROP EXTENSION queue_jobs CASCADE});
	$node->safe_psql($db, 'CREATE EXTENSION queue_jobs');
	$node->safe_psql($db, <<'SQL');
CREATE FUNCTION work(n int) RETURNS int LANGUAGE sql AS 'SELECT n + 1';
SELECT queue_jobs.define_worker('work', 'public.work');
SQL
	my $job = $node->safe_psql($db, q{SELECT queue_jobs.enqueue('work', '{"n": 1}')});
	wait_for_job($node, $job, 'completed', db => $db);
	is($node->safe_psql($db, "SELECT result FROM queue_jobs.job WHERE id = $job"), '2', "$encoding: a job has run");
}

# The hint says "command => '...'", and each other of ours is checked by test/lint/floors.pl.
for my $db (qw(postgres euc_jp sql_ascii))
{
	for my $client (qw(LATIN1 WIN1252 EUC_JP))
	{
		next if $db eq 'euc_jp' && $client ne 'EUC_JP';
		local $ENV{PGCLIENTENCODING} = $client;
		my ($status, $out, $err) = $node->psql($db, q{SELECT queue_jobs.schedule('s', '* * * * *')}, extra_params => [ '-v', 'VERBOSITY=verbose' ]);
		like($err, qr/ERROR:  22023: .*HINT:  Give the worker whose jobs it enqueues, or SQL as command => '\.\.\.'/s, "$db: a client with $client gets the whole message");
	}
}

# A role's name has the bytes of the database in which it was made.
my $role = "m\xfcller";
{
	local $ENV{PGCLIENTENCODING} = 'LATIN1';
	$node->safe_psql('latin1', qq{CREATE ROLE "$role" LOGIN IN ROLE queue_jobs_enqueue, queue_jobs_read});
	$node->safe_psql('latin1', "GRANT EXECUTE ON FUNCTION work(int) TO PUBLIC");
}
for my $db (qw(latin1 postgres))
{
	$node->safe_psql($db, q{SELECT queue_jobs.define_worker('of_all')});
	is($node->safe_psql($db, q{SELECT count(queue_jobs.enqueue('of_all'))}, extra_params => [ '-U', $role ]), '1', "$db: a role with a name in LATIN1 enqueues");
}

$node->stop;
done_testing();
