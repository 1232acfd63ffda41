# The extension is trusted: the owner of a database, or a role with CREATE on it, creates it, without a superuser, and has in that database, and nowhere else,
# what an application needs. The script runs as a superuser: nothing that the role has prepared may run with it, or give the role more.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('trusted', extension => 0);
my $superuser = $node->safe_psql('postgres', 'SELECT rolname FROM pg_roles WHERE oid = 10');
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE boss LOGIN CREATEDB CREATEROLE;
CREATE ROLE guest LOGIN;
CREATE ROLE web LOGIN;
CREATE DATABASE shop OWNER boss;
CREATE DATABASE other;
CREATE DATABASE shared;
GRANT CREATE ON DATABASE shared TO guest;
SQL

# As that role, in a session of its own: standard output, or the error.
sub as
{
	my ($role, $db, $sql) = @_;
	my ($status, $out, $err) = $node->psql($db, $sql, extra_params => [ '-U', $role ]);

	return $status == 0 ? $out : $err;
}

# ---- what the role has prepared ----

like(as('web', 'shop', 'CREATE EXTENSION queue_jobs'), qr/permission denied to create extension "queue_jobs"/, 'a role without CREATE on the database cannot');
like(as('boss', 'shop', q{CREATE EXTENSION queue_jobs VERSION '0.1.0'}), qr/permission denied to create extension "queue_jobs"/, 'version 0.1.0 is for superusers');
foreach my $schema (qw(queue_jobs queue_jobs_internal))
{
	as('boss', 'shop', "CREATE SCHEMA $schema");
	like(as('boss', 'shop', 'CREATE EXTENSION queue_jobs'), qr/schema "$schema" already exists/, "a schema $schema of the owner's is not taken over");
	like(as('boss', 'shop', "CREATE EXTENSION queue_jobs SCHEMA $schema"), qr/must be installed in schema "pg_catalog"/, '... nor by its name');
	as('boss', 'shop', "DROP SCHEMA $schema");
}

# Functions and operators that fit better than pg_catalog's, where the search_path would find them first.
my @traps;
foreach my $function ('format(text, name)', 'format(text, text, text)', 'current_setting(text)', 'string_agg(text, unknown)', 'quote_ident(name)', 'array_agg(name)', 'set_config(text, text, boolean)', 'lower(name)')
{
	my ($name, $types) = $function =~ /^(\w+)\((.*)\)$/;

	next if $types =~ /unknown/;
	push @traps, map { "CREATE FUNCTION $_.$name($types) RETURNS text LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.caught VALUES (current_user); RETURN NULL; END'" } qw(public pg_temp);
}
foreach my $operator (qw(= || ~ <>))
{
	foreach my $types ('name, text', 'text, name', 'text, text', 'name, name', 'oid, oid')
	{
		my ($left, $right) = split /, /, $types;
		my $function = "trap_${left}_$right";

		push @traps, "CREATE OR REPLACE FUNCTION public.$function($types) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.caught VALUES (current_user); RETURN true; END'";
		push @traps, "CREATE OPERATOR public.$operator (FUNCTION = public.$function, LEFTARG = $left, RIGHTARG = $right)";
	}
}
as('boss', 'shop', join(';', 'CREATE SCHEMA evil', 'CREATE TABLE public.caught (role text)', 'GRANT ALL ON public.caught TO PUBLIC', @traps));
is(as('boss', 'shop', q{SELECT count(*) FROM pg_operator WHERE oprnamespace = 'public'::regnamespace}), 20, 'the traps are set');
is(as('boss', 'shop', <<'SQL'), '', 'the owner creates the extension');
ALTER DATABASE shop SET search_path = public, pg_catalog;
SET search_path = pg_temp, public, pg_catalog;
SET plpgsql.variable_conflict = 'use_column';
CREATE TEMP TABLE pg_class (oid oid, relname name);
CREATE TEMP TABLE pg_roles (oid oid, rolname name, rolsuper boolean);
SET check_function_bodies = off;
CREATE EXTENSION queue_jobs;
SQL
is(as('boss', 'shop', 'SELECT count(*) FROM public.caught'), 0, 'and none of the traps has run');

# ---- whose it is ----

$node->safe_psql('shop', 'ALTER DATABASE shop RESET search_path');
is($node->safe_psql('shop', q{SELECT extowner::regrole FROM pg_extension WHERE extname = 'queue_jobs'}), 'boss', 'the extension is its creator\'s');
is($node->safe_psql('shop', <<'SQL'), "$superuser\n0", 'and all that is in it a superuser\'s');
SELECT DISTINCT nspowner::regrole FROM pg_namespace WHERE nspname LIKE 'queue_jobs%';
SELECT (SELECT count(*) FROM pg_class WHERE relnamespace::regnamespace::text LIKE 'queue_jobs%' AND relowner <> 10)
     + (SELECT count(*) FROM pg_proc WHERE pronamespace::regnamespace::text LIKE 'queue_jobs%' AND proowner <> 10);
SQL
foreach my $sql ('CREATE TABLE queue_jobs.mine ()', 'CREATE FUNCTION queue_jobs.mine() RETURNS int LANGUAGE sql AS $$SELECT 1$$', 'SELECT count(*) FROM queue_jobs.live_job',
	'INSERT INTO queue_jobs.lane DEFAULT VALUES', 'CREATE TRIGGER mine BEFORE INSERT ON queue_jobs.live_job EXECUTE FUNCTION suppress_redundant_updates_trigger()',
	'CREATE TABLE mine (LIKE queue_jobs.live_job); ALTER TABLE mine INHERIT queue_jobs.live_job', 'CREATE TABLE mine2 (id bigint REFERENCES queue_jobs.lane (id))',
	'CREATE PUBLICATION mine FOR TABLE queue_jobs.live_job', 'ALTER TABLE queue_jobs.live_job ENABLE ROW LEVEL SECURITY', 'CREATE RULE mine AS ON INSERT TO queue_jobs.live_job DO NOTHING',
	'CREATE STATISTICS mine ON id, lane FROM queue_jobs.live_job', 'CREATE INDEX ON queue_jobs.live_job (id)', 'ALTER SCHEMA queue_jobs RENAME TO mine',
	'ALTER SCHEMA queue_jobs OWNER TO boss', 'ALTER FUNCTION queue_jobs.cancel(bigint) SECURITY DEFINER', 'ALTER FUNCTION queue_jobs.cancel(bigint) SET search_path = public',
	'ALTER EXTENSION queue_jobs DROP FUNCTION queue_jobs.cancel(bigint)', 'ALTER EXTENSION queue_jobs SET SCHEMA public', q{COMMENT ON TABLE queue_jobs.live_job IS 'mine'},
	'CREATE OR REPLACE FUNCTION queue_jobs.cancel(id bigint) RETURNS boolean LANGUAGE sql AS $$SELECT true$$', q{SELECT queue_jobs.add_replica('mine', 'host=/tmp')},
	q{SELECT nextval('queue_jobs.job_id')}, 'SELECT queue_jobs_internal.lane_jobs()', 'TABLE queue_jobs_internal.lane_hint')
{
	like(as('boss', 'shop', $sql), qr/permission denied|must be owner|does not support SET SCHEMA|cannot rename or move/, "not the owner's: $sql");
}
is(as('boss', 'shop', 'CREATE FUNCTION evil.f() RETURNS int LANGUAGE sql AS $$SELECT 1$$; ALTER EXTENSION queue_jobs ADD FUNCTION evil.f(); ALTER EXTENSION queue_jobs DROP FUNCTION evil.f()'), '',
	'what it adds of its own it can take away');

# ---- what it has ----

is(as('boss', 'shop', <<'SQL'), 't', 'the owner defines, enqueues');
CREATE TABLE public.done (role text, session text);
CREATE FUNCTION public.work() RETURNS void LANGUAGE sql AS 'INSERT INTO public.done SELECT current_user, session_user';
DO 'BEGIN PERFORM queue_jobs.define_worker(''work'', ''public.work''); END';
SELECT queue_jobs.enqueue('work') > 0;
SQL
ok($node->poll_query_until('shop', 'SELECT count(*) = 1 FROM public.done'), 'and its job runs');
is($node->safe_psql('shop', 'SELECT * FROM public.done'), 'boss|boss', 'as the owner, and no other');
is(as('boss', 'shop', q{SELECT queue_jobs.enqueue('outside') FROM (SELECT queue_jobs.define_worker('outside')) AS d; SELECT worker FROM queue_jobs.claim('me', '{outside}'); SELECT ok FROM queue_jobs.health() WHERE NOT ok; SELECT queue_jobs.pause('none')}) =~ /outside/,
	1, 'it claims, sees and steers');
is($node->safe_psql('shop', <<'SQL'), 0, 'the rights are those of the ready-made roles, no more');
WITH granted AS (
    SELECT p.oid, a.grantee::regrole::text AS role, a.privilege_type FROM pg_proc p, aclexplode(p.proacl) a WHERE p.pronamespace = 'queue_jobs'::regnamespace
    UNION ALL SELECT c.oid, a.grantee::regrole::text, a.privilege_type FROM pg_class c, aclexplode(c.relacl) a WHERE c.relnamespace = 'queue_jobs'::regnamespace AND c.relkind <> 'S')
SELECT count(*) FROM (SELECT oid, privilege_type FROM granted WHERE role IN ('boss', 'pg_database_owner')
    EXCEPT SELECT oid, privilege_type FROM granted WHERE role LIKE 'queue_jobs_%') AS more;
SQL
is(as('web', 'shop', 'SELECT queue_jobs.enqueue(NULL)') =~ /permission denied/, 1, 'another role has no rights');
is(as('boss', 'shop', 'GRANT USAGE ON SCHEMA queue_jobs TO web; GRANT EXECUTE ON FUNCTION queue_jobs.enqueue TO web; GRANT USAGE ON SCHEMA public TO web; GRANT EXECUTE ON FUNCTION public.work TO web'), '', 'until the owner grants them');
like(as('web', 'shop', q{SELECT queue_jobs.enqueue('work')}), qr/^\d+$/, 'then it enqueues');
like(as('boss', 'other', 'SELECT queue_jobs.enqueue(NULL)'), qr/does not exist/, 'another database has no extension');
$node->safe_psql('other', 'CREATE EXTENSION queue_jobs');
like(as('boss', 'other', q{SELECT queue_jobs.enqueue('work')}), qr/permission denied for schema queue_jobs/, 'and where it has one, the owner of this one has no rights');

# A role with CREATE alone, which is not the database's owner.
is(as('guest', 'shared', 'CREATE EXTENSION queue_jobs'), '', 'CREATE on the database is enough');
is(as('guest', 'shared', q{SELECT queue_jobs.define_worker('outside'); SELECT queue_jobs.enqueue('outside') > 0}), "\nt", 'and gives the same');
is($node->safe_psql('shared', q{SET ROLE guest; DROP EXTENSION queue_jobs; CREATE EXTENSION queue_jobs; RESET ROLE; SELECT extowner::regrole FROM pg_extension WHERE extname = 'queue_jobs'}), 'guest', 'a superuser who has set that role creates it as that role');
is($node->safe_psql('shared', q{SET ROLE guest; SELECT count(*) FROM queue_jobs.job}), 0, 'with its rights');

# ---- dumped and restored ----

my $dump = $node->basedir . '/shop.sql';
$node->command_ok([ 'pg_dump', '-d', $node->connstr('shop'), '-f', $dump ], 'a superuser dumps the database');
$node->safe_psql('postgres', 'CREATE DATABASE restored OWNER boss');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('restored'), '-f', $dump ], 'and restores it');
is($node->safe_psql('restored', q{SELECT extowner::regrole = 10::oid::regrole FROM pg_extension WHERE extname = 'queue_jobs'}), 't', 'the extension is the superuser\'s then');
like(as('boss', 'restored', q{SELECT queue_jobs.enqueue('work')}), qr/^\d+$/, 'and the database\'s owner has its rights all the same');
like(as('web', 'restored', q{SELECT queue_jobs.enqueue('work')}), qr/^\d+$/, 'so has the role to which it granted some');

# The application's test database: made and dropped by its role.
as('boss', 'postgres', 'CREATE DATABASE test_shop');
is(as('boss', 'test_shop', q{CREATE EXTENSION queue_jobs; SELECT queue_jobs.define_worker('outside'); SELECT queue_jobs.enqueue('outside') > 0}), "\nt", 'a test database of its own');
is(as('boss', 'test_shop', 'DROP EXTENSION queue_jobs'), '', 'from which it drops the extension');
is(as('boss', 'postgres', 'DROP DATABASE test_shop'), '', 'and which it drops');

$node->stop;
done_testing();
