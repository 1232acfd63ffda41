# Many databases with the same workers on one server, and what is done in all of them at once.
package QueueJobs::Tenants;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT = qw(make_tenants everywhere);

# Makes databases in which 'once' ({"n": …}) leaves its n in the table ran, and 'again' -1; 'again' enqueues itself again until there is a
# row in the table gate.
sub make_tenants
{
	my ($node, @tenants) = @_;

	$node->safe_psql('postgres', 'CREATE DATABASE origin');
	$node->safe_psql('origin', <<'SQL');
CREATE EXTENSION queue_jobs;
CREATE TABLE ran (n int);
CREATE TABLE gate (n int);
CREATE FUNCTION once(n int) RETURNS void LANGUAGE sql AS 'INSERT INTO public.ran VALUES (n)';
CREATE FUNCTION again() RETURNS void LANGUAGE sql AS $$
	SELECT queue_jobs.enqueue('again') WHERE NOT EXISTS (SELECT FROM public.gate);
	INSERT INTO public.ran VALUES (-1);
	SELECT pg_sleep(0.001);
$$;
SELECT queue_jobs.define_worker('once', 'public.once'), queue_jobs.define_worker('again', 'public.again');
SQL
	$node->safe_psql('postgres', join "\n", (map { "CREATE DATABASE $_ TEMPLATE origin;" } @tenants), 'DROP DATABASE origin;');
	return;
}

# Runs a statement in each of them, and returns what it prints. One client for all, so that jobs come at about the same time.
sub everywhere
{
	my ($node, $sql, @tenants) = @_;

	return split /\n/, $node->safe_psql('postgres', join "\n", map { "\\connect $_\n$sql;" } @tenants);
}

1;
