# Names in what the engine runs for a role: operators, functions and types that another role has put where a search_path finds them are not called.
# alice is the victim. mallory may create in the schema shared, of which alice makes use.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('names', conf => "queue_jobs.max_executors = 4\n");
my $db = 'postgres';

sub sql
{
	my ($role, $sql) = @_;

	return $node->safe_psql($db, (defined $role ? "SET SESSION AUTHORIZATION $role;\n" : '') . $sql);
}

# How a job ends: its state, its result or its last error.
sub ended
{
	my ($id) = @_;

	wait_until($node, "SELECT state IN ('completed', 'dead', 'cancelled') FROM queue_jobs.job WHERE id = $id");
	return sql(undef, "SELECT state || coalesce(' ' || result::text, '') || coalesce(' ' || last_error, '') FROM queue_jobs.job WHERE id = $id");
}

# What mallory's code was called for, and forgets it.
sub sprung
{
	return sql(undef, q{WITH gone AS (DELETE FROM shared.sprung RETURNING what) SELECT coalesce(string_agg(DISTINCT what, E'\n' ORDER BY what), '') FROM gone});
}

$node->safe_psql($db, <<'SQL');
CREATE ROLE alice LOGIN; CREATE ROLE mallory LOGIN;
GRANT queue_jobs_enqueue, queue_jobs_claim, queue_jobs_define, queue_jobs_operate, queue_jobs_read TO alice, mallory;
GRANT CREATE ON DATABASE postgres TO alice, mallory;
CREATE SCHEMA shared;
GRANT USAGE ON SCHEMA shared TO PUBLIC;
GRANT CREATE ON SCHEMA shared TO mallory;
CREATE TABLE shared.sprung (what text);
GRANT ALL ON shared.sprung TO PUBLIC;
SQL

# Better matches than pg_catalog's, for the types that the engine's statements and alice's conditions compare.
sql('mallory', <<'SQL');
CREATE FUNCTION shared.spring(what text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF current_user <> 'mallory' THEN INSERT INTO shared.sprung VALUES (what || ' as ' || current_user); END IF;
	RETURN true;
END
$$;
DO $$
DECLARE
	t text;
	o text;
	i int := 0;
BEGIN
	FOREACH t IN ARRAY ARRAY['varchar', 'bpchar', 'name'] LOOP
		FOREACH o IN ARRAY ARRAY['=', '<>', '<', '<=', '>', '>='] LOOP
			i := i + 1;
			CONTINUE WHEN EXISTS (SELECT FROM pg_operator p WHERE p.oprname = o AND p.oprleft = t::regtype AND p.oprright = t::regtype);
			EXECUTE format('CREATE FUNCTION shared.trap_%s(a %s, b %s) RETURNS boolean LANGUAGE sql AS $f$SELECT shared.spring(%L)$f$', i, t, t, o || ' of ' || t);
			EXECUTE format('CREATE OPERATOR shared.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = shared.trap_%s)', o, t, t, i);
		END LOOP;
	END LOOP;
END
$$;
CREATE FUNCTION shared.age(xid) RETURNS integer LANGUAGE sql AS $$SELECT shared.spring('age')::int$$;
CREATE FUNCTION shared.jsonb_build_object(text, varchar) RETURNS jsonb LANGUAGE sql AS $$SELECT shared.spring('jsonb_build_object'); SELECT '{}'::jsonb$$;
SQL

# ---- the statements that the engine makes of a record ----

sql('alice', <<'SQL');
CREATE SCHEMA alice;
SET search_path = shared, alice, pg_catalog;
CREATE TABLE alice.orders (tenant varchar(10), number varchar(10), state varchar(10) DEFAULT 'open', PRIMARY KEY (tenant, number));
INSERT INTO alice.orders VALUES ('a', '1'), ('b', '2');
CREATE FUNCTION alice.close(args jsonb) RETURNS text LANGUAGE sql AS $$
	UPDATE alice.orders SET state = 'closed' WHERE tenant OPERATOR(pg_catalog.=) (args ->> 'tenant') AND number OPERATOR(pg_catalog.=) (args ->> 'number') RETURNING tenant
$$;
SELECT queue_jobs.define_worker('close', 'alice.close', record => 'alice.orders', record_key => 'tenant, number', pending => 'true', max_retries => 0);
SQL
is(ended(sql('alice', q{SELECT queue_jobs.enqueue('close', '{"tenant": "a", "number": "1"}')})), 'completed "a"', 'a record is found and locked');
is(sprung(), '', "… by its key's operators");

# More than healing reads at once, so that it asks for the rows after the last one of a batch.
sql('alice', <<'SQL');
SET search_path = shared, alice, pg_catalog;
INSERT INTO alice.orders SELECT 'c', i FROM generate_series(1, 1200) AS i;
SELECT queue_jobs.define_worker('close', 'alice.close', record => 'alice.orders', record_key => 'tenant, number', pending => 'true', heal_every => '1 h', heal_after => '0');
SQL
wait_until($node, q{SELECT count(*) = 0 FROM alice.orders WHERE state = 'open'});
is(sprung(), '', 'healing calls none either');
sql('alice', q{SELECT queue_jobs.drop_worker('close')});

is(sql('alice', q{SET search_path = shared, alice, pg_catalog; SELECT queue_jobs.lock_record_if('alice.orders', '{"tenant": "b", "number": "2"}'::jsonb, 'true')}), 't', 'lock_record_if() finds and locks a row');
sql('alice', q{CREATE TABLE alice.one (name varchar PRIMARY KEY); INSERT INTO alice.one VALUES ('x')});
is(sql('alice', q{SET search_path = shared, alice, pg_catalog; SELECT queue_jobs.lock_record_if('alice.one', 'x'::varchar, 'true'), queue_jobs.lock_record_if('alice.one', 'x'::text, 'true'), queue_jobs.lock_record_if('alice.one', '"x"'::jsonb, 'true')}), 't|t|t', '… by a single key, too');
is(sprung(), '', 'by its operators');

# ---- handlers ----

# Which job waits for what.
sub waits_for
{
	my ($id) = @_;

	return sql(undef, "SELECT state || ': ' || waits_for FROM queue_jobs.job WHERE id = $id");
}

# alice's functions are in the schema shared, where mallory adds his.
sql(undef, 'GRANT CREATE ON SCHEMA shared TO alice');
sql('alice', <<'SQL');
CREATE FUNCTION shared.work(args jsonb) RETURNS text LANGUAGE sql AS $$SELECT 'hers'$$;
SELECT queue_jobs.define_worker('by name', 'shared.work', max_retries => 0),
	queue_jobs.define_worker('by types', 'shared.work(jsonb)', max_retries => 0),
	queue_jobs.define_worker('as definer', 'shared.work', run_as => 'definer', max_retries => 0);
SQL
my @workers = ('by name', 'by types', 'as definer');
sub enqueue { my ($worker) = @_; return sql('alice', "SELECT queue_jobs.enqueue('$worker')") }
my $his = q{CREATE FUNCTION shared.work(%s) RETURNS text LANGUAGE sql AS $$SELECT shared.spring('work'); SELECT 'his'$$};

sql('mallory', sprintf $his, 'one int DEFAULT 1');
is(ended(enqueue($_)), 'completed "hers"', "$_: another role's function of that name is none") foreach @workers;

# A deployment drops hers; his must not take its place, of whatever parameters it is.
sql('alice', 'DROP FUNCTION shared.work(jsonb)');
my %waiting = map { $_ => enqueue($_) } @workers;
like(waits_for($waiting{$_}), qr/^available: handler "shared\.work.*": function shared\.work.* does not exist$/, "$_: without hers, jobs wait") foreach @workers;
sql('mallory', sprintf $his, 'args jsonb');
like(waits_for($waiting{$_}), qr/^available: handler "shared\.work.*": it belongs to role "mallory" now, not to "alice": define the worker again$/, "$_: so they do beside his") foreach @workers;
is(sql(undef, q{SELECT string_agg(worker || ': ' || finding, E'\n' ORDER BY worker) FROM queue_jobs.check_workers() WHERE finding LIKE 'handler %'}) =~ s/cannot be called: it belongs.*//gr,
	"as definer: handler \"shared.work\" \nby name: handler \"shared.work\" \nby types: handler \"shared.work(pg_catalog.jsonb)\" ", 'check_workers() says so');

# Hers is back, with other parameters: that is what a name without types is for.
sql('alice', q{CREATE FUNCTION shared.work(args jsonb, more int DEFAULT 2) RETURNS text LANGUAGE sql AS $$SELECT 'hers again'$$});
sql('alice', sprintf q{SELECT queue_jobs.cancel(id) FROM unnest('{%s}'::bigint[]) id}, join ',', values %waiting);
is(ended(sql('alice', qq{SELECT queue_jobs.enqueue('$_', '{"args": {}}')})), 'completed "hers again"', "$_: hers with other parameters is taken") foreach ('by name', 'as definer');
my $typed = enqueue('by types');
like(waits_for($typed), qr/it belongs to role "mallory" now/, 'by types: but not where the types were given');
sql('alice', q{CREATE FUNCTION shared.work(n int, other text) RETURNS text LANGUAGE sql AS $$SELECT 'third'$$});
my $ambiguous = enqueue('by name');
like(waits_for($ambiguous), qr/function name shared\.work is not unique/, 'of two of hers with other parameters none is');
sql('alice', 'DROP FUNCTION shared.work(int, text), shared.work(jsonb, int)');
sql(undef, 'DROP FUNCTION shared.work(jsonb)');
sql('alice', q{CREATE FUNCTION shared.work(args jsonb) RETURNS text LANGUAGE sql AS $$SELECT 'hers'$$});
is(ended($_), 'completed "hers"', 'jobs that have waited run when it is back') foreach ($typed, $ambiguous);

# The owner is another, by ALTER or REASSIGN OWNED: defined again, the worker is bound to the new one.
sql(undef, 'GRANT mallory TO alice; ALTER FUNCTION shared.work(jsonb) OWNER TO mallory');
$typed = enqueue('by types');
like(waits_for($typed), qr/it belongs to role "mallory" now, not to "alice"/, 'by types: the owner has changed');
sql(undef, 'ALTER FUNCTION shared.work(jsonb) OWNER TO alice');
is(ended($typed), 'completed "hers"', 'it runs when its owner has the function back');
sql(undef, 'ALTER FUNCTION shared.work(jsonb) OWNER TO mallory');
$typed = enqueue('by types');
is(sql('alice', q{SELECT queue_jobs.define_worker('by types', 'shared.work(jsonb)'); SELECT handler_owner FROM queue_jobs.worker WHERE name = 'by types'}), "\nmallory", 'defined again');
is(ended($typed), 'completed "hers"', 'it runs');
sql(undef, 'REVOKE mallory FROM alice; ALTER FUNCTION shared.work(jsonb) OWNER TO alice');
sql('alice', q{SELECT queue_jobs.define_worker('by types', 'shared.work(jsonb)')});
sql(undef, 'ALTER ROLE alice RENAME TO alison');
is(sql(undef, q{SELECT string_agg(DISTINCT handler_owner, ' ') FROM queue_jobs.worker WHERE handler = 'shared.work'}), 'alison', 'a renamed role owns it still');
sql(undef, 'ALTER ROLE alison RENAME TO alice');
is(ended(enqueue('by types')), 'completed "hers"', '… and its jobs run');
is(sprung(), '', 'nothing of his was called');

# Read handlers and retry delays.
sql('alice', <<'SQL');
CREATE FUNCTION shared.look(args jsonb) RETURNS jsonb LANGUAGE sql AS $$SELECT '"hers"'::jsonb$$;
CREATE FUNCTION shared.later(failures int) RETURNS interval LANGUAGE sql AS $$SELECT '1 hour'::interval$$;
CREATE FUNCTION alice.with_read(read jsonb, args jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT read';
CREATE FUNCTION alice.fails(args jsonb) RETURNS void LANGUAGE plpgsql AS $$BEGIN RAISE 'no'; END$$;
SELECT queue_jobs.define_worker('reads', 'alice.with_read', read_handler => 'shared.look'), queue_jobs.define_worker('fails', 'alice.fails', retry_backoff => 'shared.later');
SQL
is(ended(enqueue('reads')), 'completed "hers"', 'a read handler');
my $retried = enqueue('fails');
wait_for_job($node, $retried, 'retryable');
cmp_ok(sql(undef, "SELECT extract(epoch FROM run_at - now()) FROM queue_jobs.job WHERE id = $retried"), '>', 3000, 'a retry delay');
sql('alice', 'DROP FUNCTION shared.look, shared.later');
sql('mallory', <<'SQL');
CREATE FUNCTION shared.look(args jsonb) RETURNS jsonb LANGUAGE sql AS $$SELECT shared.spring('look'); SELECT '"his"'::jsonb$$;
CREATE FUNCTION shared.later(failures int) RETURNS interval LANGUAGE sql AS $$SELECT shared.spring('later'); SELECT '2 hours'::interval$$;
SQL
my $reading = enqueue('reads');
like(waits_for($reading), qr/^available: read_handler "shared\.look": it belongs to role "mallory" now, not to "alice": define the worker again$/, "jobs wait beside another role's read handler");
sql('alice', "SELECT queue_jobs.retry($retried)");
wait_until($node, "SELECT state = 'retryable' AND attempt >= 2 FROM queue_jobs.job WHERE id = $retried");
cmp_ok(sql(undef, "SELECT extract(epoch FROM run_at - now()) FROM queue_jobs.job WHERE id = $retried"), '<', 300, "beside another role's retry_backoff Sidekiq's formula counts");
$node->wait_for_log(qr/LOG: .*retry_backoff function "shared\.later" of worker "fails" cannot be called.*\n.*DETAIL: +It belongs to role "mallory" now/);
is(sprung(), '', 'neither is called');
sql('alice', "SELECT queue_jobs.cancel(id) FROM unnest(ARRAY[$reading, $retried]) id");

# A superuser's, in a schema whose owner may drop it there.
sql(undef, <<'SQL');
CREATE SCHEMA mallory AUTHORIZATION mallory;
CREATE FUNCTION mallory.report(args jsonb) RETURNS text LANGUAGE sql AS $$SELECT 'root''s'$$;
SELECT queue_jobs.define_worker('report', 'mallory.report'), queue_jobs.schedule('report', '@yearly', 'report');
SQL
sql('mallory', q{DROP FUNCTION mallory.report; CREATE FUNCTION mallory.report(args jsonb) RETURNS text LANGUAGE sql AS $$SELECT shared.spring('report'); SELECT 'his'$$});
my $report = sql(undef, q{SELECT queue_jobs.run_now('report')});
like(waits_for($report), qr/it belongs to role "mallory" now, not to "postgres"/, "a superuser's handler was replaced by a schema's owner");
is(sprung(), '', '… in vain');
sql(undef, qq{SELECT queue_jobs.cancel($report), queue_jobs.unschedule('report')});

# What a dump of 0.1.0 brings is bound to what is there.
is(sql(undef, <<'SQL'), "by name|shared.work|pg_catalog.jsonb|alice\nby types|shared.work(pg_catalog.jsonb)|pg_catalog.jsonb|alice\nfails|alice.fails|pg_catalog.jsonb|alice", 'definitions without owners that are restored');
CREATE TEMPORARY TABLE old AS SELECT * FROM queue_jobs.defined_worker WHERE name IN ('by name', 'by types', 'fails');
-- 0.1.0's last column is search_path.
SELECT pg_catalog.format('ALTER TABLE old %s', string_agg('DROP ' || attname, ', ')) FROM pg_attribute
 WHERE attrelid = 'old'::regclass AND attnum > (SELECT attnum FROM pg_attribute WHERE attrelid = 'old'::regclass AND attname = 'search_path') \gexec
DELETE FROM queue_jobs.defined_worker WHERE name IN ('by name', 'by types', 'fails');
INSERT INTO queue_jobs.defined_worker SELECT * FROM old;
SELECT name, handler, handler_arguments, handler_owner FROM queue_jobs.defined_worker WHERE name IN ('by name', 'by types', 'fails') ORDER BY 1;
SQL
is(ended(enqueue('by name')), 'completed "hers"', 'and run');
sql(undef, q{UPDATE queue_jobs.defined_worker SET handler_owner = NULL WHERE name = 'by name'});
my $unbound = enqueue('by name');
like(waits_for($unbound), qr/handler "shared\.work": it is bound to no role: define the worker again/, 'without an owner they wait');

# ---- search paths of conditions and queries ----

# A definition that asks for a notice.
sub notices
{
	my ($role, $sql) = @_;
	my ($status, $out, $err) = $node->psql($db, "SET SESSION AUTHORIZATION $role;\n$sql", on_error_stop => 1);

	return $err =~ s/^psql:<stdin>:\d+: //mgr;
}

sub stored_path
{
	my ($worker) = @_;

	return sql(undef, "SELECT search_path FROM queue_jobs.worker WHERE name = '$worker'");
}

# The condition compares varchar, for which mallory has an operator in shared; and calls a function that alice has there.
sql('alice', <<'SQL');
CREATE FUNCTION shared.is_open(state varchar) RETURNS boolean LANGUAGE sql AS $$SELECT state OPERATOR(pg_catalog.=) 'open'$$;
CREATE FUNCTION alice.done(args jsonb) RETURNS text LANGUAGE sql AS $$SELECT 'done'$$;
INSERT INTO alice.orders VALUES ('d', '1', 'open'), ('d', '2', 'closed');
SQL
my $orders = q{record => 'alice.orders', record_key => 'tenant, number', max_retries => 0};
my $path = 'SET search_path = shared, alice, pg_catalog';
like(notices('alice', "$path; SELECT queue_jobs.define_worker('orders', 'alice.done', $orders, pending => q) FROM (SELECT 'state = ''open''') t (q)"),
	qr/^NOTICE:  schema "shared" is left out of the search_path of worker "orders"\nDETAIL:  Role "mallory" may create objects in it\.\nHINT:  .*REVOKE CREATE ON SCHEMA shared/m, 'a schema in which another role may create is left out');
is(stored_path('orders'), 'alice, pg_catalog, pg_temp', '… of the path');
my ($open, $closed) = map { ended(sql('alice', qq{SELECT queue_jobs.enqueue('orders', '{"tenant": "d", "number": "$_"}')})) } 1, 2;
is("$open, $closed", 'completed "done", completed "skipped"', '… and its operator is not called');
is(sprung(), '', '… by the job');
like(notices('alice', "$path; SELECT queue_jobs.define_worker('orders', 'alice.done', $orders, pending => 'is_open(state)')"), qr/NOTICE: .*function is_open\(character varying\) does not exist/s, 'nor is what is there found otherwise');
is(notices('alice', "$path; SELECT queue_jobs.define_worker('plain', 'alice.done')"), '', 'without a condition there is nothing to be said');

# Only the definer, the handler's owner and superusers may create: then it counts, until another role may, and again when it may not any more.
sub condition { return ended(sql('alice', q{SELECT queue_jobs.enqueue('orders', '{"tenant": "d", "number": "1"}')})) }
sql(undef, 'REVOKE CREATE ON SCHEMA shared FROM mallory');
is(notices('alice', "$path; SELECT queue_jobs.define_worker('orders', 'alice.done', $orders, pending => 'is_open(state)')"), '', 'no other role may create');
is(stored_path('orders'), 'shared, alice, pg_catalog, pg_temp', '… the path has it all');
is(condition(), 'completed "done"', '… and the condition what is there');
foreach my $change ([ 'GRANT CREATE ON SCHEMA shared TO mallory', 'REVOKE CREATE ON SCHEMA shared FROM mallory', 'Role "mallory" may create objects in it.' ],
	[ 'GRANT CREATE ON SCHEMA shared TO PUBLIC', 'REVOKE CREATE ON SCHEMA shared FROM PUBLIC', 'Every role may create objects in it.' ],
	[ 'ALTER SCHEMA shared OWNER TO mallory', 'ALTER SCHEMA shared OWNER TO postgres', 'Role "mallory" owns it.' ],
	[ 'ALTER SCHEMA shared OWNER TO pg_database_owner; ALTER DATABASE postgres OWNER TO mallory', 'ALTER DATABASE postgres OWNER TO postgres', 'Role "mallory" owns it.' ],
	[ 'ALTER SCHEMA shared OWNER TO postgres; CREATE ROLE root SUPERUSER; GRANT CREATE ON SCHEMA shared TO root; ALTER ROLE root NOSUPERUSER', 'ALTER ROLE root SUPERUSER', 'Role "root" may create objects in it.' ])
{
	my ($grant, $revoke, $reason) = @$change;

	sql(undef, $grant);
	is(condition(), 'dead function is_open(character varying) does not exist', "from then on it does not: $grant");
	is(sql(undef, q{SELECT finding FROM queue_jobs.check_workers() WHERE worker = 'orders' AND finding LIKE 'schema %'}), qq{schema "shared" of its search_path is not used: $reason}, '… as check_workers() says');
	sql(undef, $revoke);
	is(condition(), 'completed "done"', "and again: $revoke");
}
is(sql('alice', "$path; SELECT queue_jobs.assert_idempotent('orders', '{\"tenant\": \"d\", \"number\": \"1\"}')"), '', 'as assert_idempotent() runs it');

# The owner of the handler may create, too: his code runs anyway.
sql(undef, q{CREATE ROLE carol; GRANT USAGE ON SCHEMA alice TO carol; GRANT CREATE ON SCHEMA shared TO carol; ALTER FUNCTION alice.done OWNER TO carol});
sql('alice', "$path; SELECT queue_jobs.define_worker('orders', 'alice.done', $orders, pending => 'is_open(state)')");
is(stored_path('orders'), 'shared, alice, pg_catalog, pg_temp', "the handler's owner may create");
is(condition(), 'completed "done"', '… and the condition has what is there');
sql(undef, 'REVOKE CREATE ON SCHEMA shared FROM carol');

# Healing, and queries of remaining work: in executors, as alice.
sql(undef, 'DROP OPERATOR shared.= (varchar, varchar)');
sql('alice', "$path; SELECT queue_jobs.define_worker('orders', 'alice.done', $orders, pending => 'state = ''open''', heal_every => '1 s', heal_after => '0'), "
	. q{queue_jobs.define_worker('rest', 'alice.done', max_running_jobs => 1, remaining_work => 'SELECT jsonb_build_object(1, state) FROM alice.orders WHERE state = ''closed'' AND tenant = ''d'' LIMIT 1')});
is(stored_path('rest'), 'shared, alice, pg_catalog, pg_temp', 'a query has the whole path');
sql(undef, 'GRANT CREATE ON SCHEMA shared TO mallory');
sql('mallory', q{CREATE FUNCTION shared.same(varchar, varchar) RETURNS boolean LANGUAGE sql AS $$SELECT shared.spring('= again')$$; CREATE OPERATOR shared.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = shared.same)});
sql(undef, 'SELECT queue_jobs.remove_jobs(name) FROM queue_jobs.worker');
my $last = sql(undef, 'SELECT max(id) FROM queue_jobs.job');
wait_until($node, "SELECT count(DISTINCT worker) = 2 FROM queue_jobs.job WHERE worker IN ('orders', 'rest') AND id > $last AND state = 'completed'");
sql('alice', q{SELECT queue_jobs.drop_worker('orders'), queue_jobs.drop_worker('rest')});
is(sprung(), '', 'neither calls what mallory has there by then');

$node->stop;
done_testing();
