# Args and results as ciphertext (docs/how-to/secrets.md): what is clear for handlers and claimants is nowhere on disk, in no view, log or dump; keys
# that are missing, that come back, that are rotated, whose command hangs; ciphertext that was moved; duplicates; a dump, and a standby that is promoted.
use strict;
use warnings;

use File::Basename 'dirname';
use File::Find;
use POSIX 'mkfifo';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $key_file = PostgreSQL::Test::Utils::tempdir() . '/keys';
my %key = (1 => '1a' x 32, 2 => '2b' x 32, 3 => '3c' x 32, dedup => 'dd' x 32);

sub write_keys
{
	my (@versions) = @_;

	unlink $key_file;
	append_to_file($key_file, "# for the test\n\n");
	append_to_file($key_file, "$_ $key{$_}\n") foreach @versions;
	return;
}

write_keys(1);
my $node = new_node('encryption', init => [ allows_streaming => 'logical' ], conf => <<"CONF");
queue_jobs.encryption_key_command = 'cat "$key_file"'
queue_jobs.log_jobs = 'all'
log_statement = none
log_replication_commands = off
log_min_error_statement = panic
CONF
plan skip_all => "the library was built without OpenSSL's headers" unless can_encrypt($node);
sub sql { my ($sql, %opts) = @_; return $node->safe_psql('postgres', $sql, %opts) }

sub sql_as { my ($role, $sql) = @_; return $node->safe_psql('postgres', $sql, extra_params => [ '-U', $role ]) }

# The error of a statement, with its DETAIL.
sub error_of
{
	my ($sql, $role) = @_;
	my (undef, undef, $error) = $node->psql('postgres', $sql, $role ? (extra_params => [ '-U', $role ]) : ());

	return $error;
}

sub reload { sql('SELECT pg_reload_conf()'); return }

# The server takes the keys as they are now: all processes leave it, and begin again.
sub restart { $node->restart; return }

# Each file that has one of the secrets in it: all begin with the same word, which never stands alone.
sub files_with_secrets
{
	my (@folders) = @_;
	my @found;

	find({ no_chdir => 1, wanted => sub {
		return unless -f $_;
		my $content = eval { slurp_file($_) } // return;
		push @found, "$_ ($&)" if $content =~ /sesame[a-z]+/;
	} }, @folders);
	return @found;
}

sql(q{
CREATE ROLE app LOGIN IN ROLE queue_jobs_enqueue, queue_jobs_claim, queue_jobs_define, queue_jobs_read;
CREATE ROLE app_reader LOGIN;
GRANT app TO app_reader;
CREATE ROLE stranger LOGIN IN ROLE pg_read_all_data, pg_monitor, queue_jobs_claim, queue_jobs_read, queue_jobs_enqueue;
CREATE SCHEMA app AUTHORIZATION app;
});

# ---- the handler sees what nobody else does ----

sql_as('app', q{
CREATE TABLE app.seen (job bigint, card text, amount int, own text, note text);
CREATE FUNCTION app.charge(card text, amount int, note jsonb DEFAULT NULL) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO app.seen SELECT j.id, md5(card), amount, md5(j.args ->> 'card'), md5(note::text) FROM queue_jobs.current_job() j;
	RETURN jsonb_build_object('receipt', 'sesame' || 'receipt', 'amount', amount);
END $$;
SELECT queue_jobs.define_worker('charge', 'app.charge', encrypt => '{card,note}', encrypt_result => true);
SELECT queue_jobs.define_worker('letter', encrypt => '{*}', encrypt_result => true, max_retries => 3);
});
my $job = sql_as('app', q{SELECT queue_jobs.enqueue('charge', '{"card": "sesamecard", "amount": 7, "note": {"a": ["sesamenote", 1.50, null]}}')});
wait_for_job($node, $job, 'completed');
is(sql("SELECT card = md5('sesamecard'), amount, own = card, note = md5('{\"a\": [\"sesamenote\", 1.50, null]}'::jsonb::text) FROM app.seen WHERE job = $job"),
	't|7|t|t', 'the handler gets the args clear, and so does current_job()');
my $ciphertext = qr/queue_jobs:encrypted:1:[A-Za-z0-9+\/]+=*/;
my $row = sql_as('app', "SELECT args, result FROM queue_jobs.job WHERE id = $job");
like($row, qr/^\{"card": "$ciphertext", "note": "$ciphertext", "amount": 7\}\|"$ciphertext"$/, 'its owner sees ciphertext in the view');
is(sql_as('app', "SELECT args -> 'card', args -> 'note' -> 'a' -> 1, result ->> 'amount', errors FROM queue_jobs.decrypt_job($job)"), '"sesamecard"|1.50|7|',
	'decrypt_job() for the owner');
is(sql_as('app_reader', "SELECT args ->> 'card', result ->> 'receipt' FROM queue_jobs.decrypt_job($job)"), 'sesamecard|sesamereceipt', '… for members of that role');
is(sql("SELECT args ->> 'card' FROM queue_jobs.decrypt_job($job)"), 'sesamecard', '… for superusers');
is(sql('SELECT args IS NULL FROM queue_jobs.decrypt_job(0)'), 't', '… of no job: NULLs');
like(error_of("SELECT * FROM queue_jobs.decrypt_job($job)", 'stranger'), qr/permission denied for job $job/, 'but not for other roles');
is(sql_as('stranger', 'SELECT count(*) FROM queue_jobs.job'), '0', 'another role sees nothing in the view');
like(sql_as('stranger', "SELECT args, result FROM queue_jobs.finished_job WHERE id = $job"), qr/"card": "$ciphertext".*\|"$ciphertext"/, 'pg_read_all_data: ciphertext in the table');
unlike(sql_as('stranger', 'SELECT string_agg(f::text, chr(10)) FROM queue_jobs.finished_job f'), qr/sesame/, '… and nothing else');
is(sql(q{SHOW queue_jobs.encryption_key_command}), qq{cat "$key_file"}, 'the setting');
like(error_of('SHOW queue_jobs.encryption_key_command', 'app'), qr/must be superuser|permission denied/, '… which other roles do not see');
like(error_of(q{SET queue_jobs.encryption_key_command = 'true'}), qr/cannot be changed now/, '… and which no session sets');

# The same value twice has two ciphertexts.
my @two = map { sql_as('app', q{SELECT queue_jobs.enqueue('letter', '{"a": "same", "b": "same"}', delay => '1 day')}) } 1, 2;
is(sql("SELECT count(DISTINCT v.value) FROM queue_jobs.job j, jsonb_each_text(j.args) v WHERE j.id IN ($two[0], $two[1])"), '4', 'nonces of their own');
is(sql_as('app', q{SELECT count(*) FROM queue_jobs.search_jobs(worker => 'letter', args => '{"a": "same"}')}), '0', 'search_jobs() finds no value that is encrypted');
sql("SELECT queue_jobs.cancel(id) FROM unnest(ARRAY[$two[0], $two[1]]) id");

# ---- claimants ----

my $letter = sql_as('app', q{SELECT queue_jobs.enqueue('letter', '{"to": "sesameclaimed", "copies": 2}')});
is(sql_as('stranger', q{SELECT count(*) FROM queue_jobs.claim('s', '{*}')}), '0', 'another role claims nothing of it');
is(sql_as('app', q{SELECT args FROM queue_jobs.claim('a', '{letter}')}), '{"to": "sesameclaimed", "copies": 2}', 'the claimant gets the args clear');
unlike(sql("SELECT l::text FROM queue_jobs.live_job l WHERE id = $letter"), qr/sesame/, '… and the lease has ciphertext');
sql_as('app', "SELECT queue_jobs.fail($letter, 1, 'sesamefailure', 'at sesamefailure', retry_in => '0')");
like(sql("SELECT last_error FROM queue_jobs.job WHERE id = $letter"), qr/^$ciphertext$/, 'the texts of errors are ciphertext');
is(sql_as('app', "SELECT errors -> 0 ->> 'message', errors -> 0 ->> 'detail' FROM queue_jobs.decrypt_job($letter)"), 'sesamefailure|at sesamefailure', '… that decrypt_job() decrypts');
sql_as('app', qq{SELECT queue_jobs.complete(id, attempt, '{"sent": "sesameposted"}') FROM queue_jobs.claim('a', '{letter}')});
like(sql("SELECT result FROM queue_jobs.job WHERE id = $letter"), qr/^"$ciphertext"$/, 'the result of complete() is ciphertext');
is($node->safe_psql('postgres', "CALL queue_jobs.await_job($letter)"), 'completed|{"sent": "sesameposted"}|sesamefailure', 'await_job() has result and error clear');

# Args that are no object; texts that look like ciphertext are the caller's own.
my $odd = sql_as('app', q{SELECT queue_jobs.enqueue('letter', '["sesamewhole", 1]')});
is(sql_as('app', q{SELECT args FROM queue_jobs.claim('a', '{letter}')}), '["sesamewhole", 1]', 'args that are an array');
like(sql("SELECT args FROM queue_jobs.job WHERE id = $odd"), qr/^"$ciphertext"$/, '… are encrypted as a whole');
sql_as('app', "SELECT queue_jobs.complete($odd, 1)");
is(sql_as('app', q{SELECT queue_jobs.enqueue('letter', '5') > 0}), 't', 'a number');
is(sql_as('app', q{SELECT args, queue_jobs.complete(id, attempt) FROM queue_jobs.claim('a', '{letter}')}), '5|', '… comes back');
sql_as('app', q{SELECT queue_jobs.define_worker('looks', encrypt => '{a}')});
sql_as('app', q{SELECT queue_jobs.enqueue('looks', '{"a": 1, "b": "queue_jobs:encrypted:1:AAAA", "c": "queue_jobs:encrypted:"}')});
is(sql_as('app', q{SELECT args, queue_jobs.complete(id, attempt) FROM queue_jobs.claim('a', '{looks}')}),
	'{"a": 1, "b": "queue_jobs:encrypted:1:AAAA", "c": "queue_jobs:encrypted:"}|', 'what looks like ciphertext is the value that it was');
like(error_of(q{SELECT queue_jobs.enqueue('looks', '[1]')}, 'app'), qr/args must be a JSON object for worker "looks"/, 'args without the keys are refused');

# enqueue_many(), a procedure, a large value, change_job().
sql_as('app', q{
CREATE PROCEDURE app.proceeds(card text) LANGUAGE plpgsql AS $$ BEGIN COMMIT; INSERT INTO app.seen VALUES (0, md5(card), length(card)); END $$;
SELECT queue_jobs.define_worker('proceeds', 'app.proceeds', encrypt => '{card}');
});
my @many = split /\n/, sql_as('app', q{SELECT queue_jobs.enqueue_many('proceeds', ARRAY[jsonb_build_object('card', repeat('sesamecard ', 20000)), '{"card": "sesamecard"}'])});
wait_for_job($node, $_, 'completed') foreach @many;
is(sql(q{SELECT string_agg(amount::text, ' ' ORDER BY amount) FROM app.seen WHERE job = 0}), '10 220000', 'enqueue_many(), procedures, large values');
my $changed = sql_as('app', q{SELECT queue_jobs.enqueue('charge', '{"card": "x", "amount": 1}', delay => '1 day')});
is(sql_as('app', qq{SELECT queue_jobs.change_job($changed, args => '{"card": "sesamecard", "amount": 2}')}), 't', 'change_job()');
unlike(sql("SELECT args FROM queue_jobs.job WHERE id = $changed"), qr/sesame/, '… encrypts');
is(sql_as('app', "SELECT args FROM queue_jobs.decrypt_job($changed)"), '{"card": "sesamecard", "amount": 2}', '… what it is given');
sql("SELECT queue_jobs.retry($changed)");
wait_for_job($node, $changed, 'completed');

# ---- failures of handlers, dead jobs, what follows on them ----

sql_as('app', q{
CREATE FUNCTION app.fails(card text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM app.seen WHERE job = -1) THEN
		RAISE EXCEPTION 'card % is refused', card USING DETAIL = 'the card ' || card;
	END IF;
END $$;
CREATE TABLE app.heard (args jsonb, dead text);
CREATE FUNCTION app.hears(args jsonb) RETURNS void LANGUAGE sql AS $$
	INSERT INTO app.heard SELECT $1, md5(d.args ->> 'card') FROM queue_jobs.decrypt_job(($1 ->> 'job')::bigint) d $$;
SELECT queue_jobs.define_worker('hears', 'app.hears');
SELECT queue_jobs.define_worker('hears in secret', 'app.hears', encrypt => '{*}');
SELECT queue_jobs.define_worker('fails', 'app.fails', max_retries => 0, encrypt => '{card}', on_dead => 'hears');
SELECT queue_jobs.define_worker('fails too', 'app.fails', max_retries => 0, encrypt => '{card}', on_dead => 'hears in secret');
});
my $dead = sql_as('app', q{SELECT queue_jobs.enqueue('fails', '{"card": "sesamecard"}')});
wait_for_job($node, $dead, 'dead');
is(sql("SELECT errors -> 0 ->> 'sqlstate' FROM queue_jobs.job WHERE id = $dead"), 'P0001', 'the SQLSTATE of an error is clear');
is(sql("SELECT errors -> 0 ->> 'message', errors -> 0 ->> 'detail' FROM queue_jobs.decrypt_job($dead)"), 'card sesamecard is refused|the card sesamecard', 'its texts are not');
wait_until($node, 'SELECT count(*) = 1 FROM app.heard');
is(sql("SELECT dead = md5('sesamecard'), args::text ~ 'sesame' FROM app.heard"), 't|f', 'on_dead has ciphertext, and decrypt_job()');
my $dead_too = sql_as('app', q{SELECT queue_jobs.enqueue('fails too', '{"card": "sesamecard"}')});
wait_until($node, 'SELECT count(*) = 2 FROM app.heard');
is(sql("SELECT dead = md5('sesamecard') FROM app.heard WHERE args ->> 'job' = '$dead_too'"), 't', '… also a worker that encrypts its own');
sql('INSERT INTO app.seen (job) VALUES (-1)');
is(sql("SELECT queue_jobs.retry($dead)"), 't', 'a dead job is retried');
wait_for_job($node, $dead, 'completed');

# ---- batches and workflows ----

sql_as('app', q{
CREATE FUNCTION app.first(card text) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb('sesame' || 'step ' || card) $$;
CREATE FUNCTION app.next(results jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(md5(results ->> 'one')) $$;
CREATE FUNCTION app.ends(batch bigint) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(md5(string_agg(r.args::text || r.result::text, '' ORDER BY r.job))) FROM queue_jobs.batch_results(batch) r WHERE r.step = 'one' $$;
SELECT queue_jobs.define_worker('first', 'app.first', encrypt => '{*}', encrypt_result => true);
SELECT queue_jobs.define_worker('next', 'app.next');
SELECT queue_jobs.define_worker('ends', 'app.ends');
});
sql_as('app', q{SELECT queue_jobs.enqueue_workflow('w', '[{"step": "one", "worker": "first", "args": {"card": "sesamenested"}}, {"step": "two", "worker": "next", "after": ["one"]}]',
	on_success => 'ends')});
wait_until($node, q{SELECT count(*) = 1 FROM queue_jobs.job WHERE worker = 'ends' AND state = 'completed'});
is(sql(q{SELECT result #>> '{}' = md5('sesamestep sesamenested') FROM queue_jobs.job WHERE worker = 'next'}), 't', 'a step gets the results before it clear');
is(sql(q{SELECT result #>> '{}' = md5('{"card": "sesamenested"}"sesamestep sesamenested"') FROM queue_jobs.job WHERE worker = 'ends'}), 't', '… and batch_results() has them clear');
unlike(sql(q{SELECT string_agg(m::text, ' ') FROM queue_jobs.batch_member m}), qr/sesame/, '… but not the view');
like(error_of(q{SELECT queue_jobs.new_batch(on_success => 'charge', args => '{"card": 1}')}, 'app'), qr/args of a batch cannot be encrypted/, 'args of a batch would be stored clear');
like(error_of(q{SELECT queue_jobs.schedule('s', '@daily', 'charge', '{"card": "1", "amount": 1}')}, 'app'), qr/args of a schedule cannot be encrypted/, '… and those of a schedule');

# ---- duplicates ----

sql_as('app', q{SELECT queue_jobs.define_worker('once', idempotent => true, encrypt => '{*}')});
my $once = sql_as('app', q{SELECT queue_jobs.enqueue('once', '{"a": "sesamewhole", "n": [1.0, {"x": true}]}')});
is(sql_as('app', q{SELECT queue_jobs.enqueue('once', '{"n": [1.00, {"x": true}], "a": "sesamewhole"}')}), $once, 'a duplicate is known, with another nonce');
isnt(sql_as('app', q{SELECT queue_jobs.enqueue('once', '{"a": "sesamewhole", "n": [1.0, {"x": false}]}')}), $once, '… and what is none');
like(sql("SELECT dedup_key FROM queue_jobs.job WHERE id = $once"), qr/^queue_jobs:hmac:[0-9a-f]{64}$/, 'its key is a keyed hash');
is(sql_as('stranger', q{SELECT count(*) FROM (SELECT queue_jobs.enqueue('once', '{"a": "sesamewhole", "n": [1.0, {"x": true}]}')) s}), '1', 'another role enqueues the same');
is(sql(q{SELECT count(DISTINCT dedup_key) FROM queue_jobs.job WHERE worker = 'once'}), '3', '… whose key is another');

# ---- rotation ----

write_keys(1, 2);
reload();
wait_until($node, q{SELECT pg_catalog.pg_conf_load_time() > pg_catalog.pg_postmaster_start_time()});
my $second = sql_as('app', q{SELECT queue_jobs.enqueue('charge', '{"card": "sesamecard", "amount": 2}', delay => '1 day')});
like(sql("SELECT args ->> 'card' FROM queue_jobs.job WHERE id = $second"), qr/^queue_jobs:encrypted:2:/, 'new jobs have the new version');
is(sql_as('app', "SELECT args ->> 'card' FROM queue_jobs.decrypt_job($job)"), 'sesamecard', '… and old ones are read');
is(sql_as('app', q{SELECT queue_jobs.enqueue('once', '{"a": "sesamewhole", "n": [1, {"x": true}]}')}), $once, '… and the duplicates of old ones are known');

# Without the first version: what needs it waits, what does not goes on.
write_keys(2);
restart();
is(sql("SELECT reason FROM queue_jobs.explain_job($once) WHERE reason = 'encryption_key'"), 'encryption_key', 'explain_job() says that a key is missing');
like(sql("SELECT waits_for FROM queue_jobs.job WHERE id = $once"), qr/^encryption key version 1 is missing: /, '… and waits_for');
is(sql(q{SELECT ok, advice IS NOT NULL FROM queue_jobs.health() WHERE name = 'encryption_keys'}), 'f|t', '… and health()');
like(sql_as('stranger', q{SELECT value FROM queue_jobs.health() WHERE name = 'encryption_keys'}), qr/^jobs of worker "once" wait: encryption key version 1 is missing/, '… also to pg_monitor');
is(sql_as('app', q{SELECT count(*) FROM queue_jobs.claim('a', '{once}', 10)}), '0', 'a claim passes them by');
sql("SELECT queue_jobs.retry($second)");
wait_for_job($node, $second, 'completed');
pass('a job of the version that is there runs');
like(error_of("SELECT queue_jobs.decrypt_job($job)", 'app'), qr/encryption key version 1 is missing/, 'decrypt_job() says so, too');
my $first = sql_as('app', q{SELECT queue_jobs.enqueue('fails', '{"card": "sesamecard"}')});
wait_for_job($node, $first, 'completed');

# No key at all: what is to be encrypted is refused.
write_keys();
restart();
like(error_of(q{SELECT queue_jobs.enqueue('charge', '{"card": "x", "amount": 1}')}, 'app'), qr/there is no encryption key.*DETAIL:.*prints no key/s, 'nothing is enqueued without a key');
like(sql(q{SELECT value FROM queue_jobs.health() WHERE name = 'encryption_keys'}), qr/is missing|there is no key/, 'health() says so');
is(sql("SELECT queue_jobs.explain_job($once) IS NOT NULL LIMIT 1"), 't', 'explain_job() of a job without a key');
foreach my $bad ([ 'nonsense' => 'Line 1 .* is not a version and a key' ], [ "1 $key{1}00" => 'Line 1 .* is not' ], [ "1 " . 'zz' x 32 => 'Line 1 .* is not' ],
	[ "0 $key{1}" => 'Line 1 .* is not' ], [ "1 $key{1}\n1 $key{2}" => 'Line 2 .* has a version that another line has' ], [ "dedup $key{1}" => 'prints no key' ])
{
	unlink $key_file;
	append_to_file($key_file, "$bad->[0]\n");
	like(error_of(q{SELECT queue_jobs.enqueue('charge', '{"card": "x", "amount": 1}')}, 'app'), qr/there is no encryption key.*$bad->[1]/s, "refused: $bad->[1]");
}
unlink $key_file;
like(error_of(q{SELECT queue_jobs.enqueue('charge', '{"card": "x", "amount": 1}')}, 'app'), qr/encryption_key_command" failed: child process exited with exit code 1/i, 'a command that fails');

# A handler's job that waits for its key goes on by itself when that is back: no reload.
write_keys(2);
my $held = sql_as('app', q{SELECT queue_jobs.enqueue('charge', '{"card": "sesamecard", "amount": 99}', delay => '1 day')});
my $held_too = sql_as('app', q{SELECT queue_jobs.enqueue('charge', '{"card": "sesamecard", "amount": 98}', delay => '1 day')});
write_keys(3);
restart();
my $behind = sql_as('app', q{SELECT queue_jobs.enqueue('charge', '{"card": "sesamecard", "amount": 97}', delay => '1 day')});
sql("SELECT queue_jobs.retry(id) FROM unnest(ARRAY[$held, $held_too, $behind]) id");
wait_for_job($node, $behind, 'completed');
pass('jobs behind those that wait for a key go on');
is(sql("SELECT string_agg(state, ' ') FROM queue_jobs.job WHERE id IN ($held, $held_too)"), 'available available', '… which wait');
write_keys(1, 2, 3, 'dedup');
wait_for_job($node, $_, 'completed') foreach $held, $held_too;
pass('… until the key is back');
is(sql(q{SELECT count(*) FROM app.seen WHERE amount IN (97, 98, 99)}), '3', '… and run once');
is(sql(q{SELECT ok FROM queue_jobs.health() WHERE name = 'encryption_keys'}), 't', 'health() is content');
# Long args of many jobs in several queues: those of one are in memory at a time. (The peak of a process has its shared memory in it, too.)
my $peak = q{SELECT substring(pg_read_file('/proc/' || pg_backend_pid() || '/status') FROM 'VmPeak:\s+(\d+)')::bigint AS};
sql_as('app', q{SELECT count(queue_jobs.enqueue('once', jsonb_build_object('a', repeat('x', 3000000), 'n', n), queue => 'long ' || n % 4)) FROM generate_series(1, 20) n});
my $grown = sql("$peak before \\gset\nSELECT ok FROM queue_jobs.health() WHERE name = 'encryption_keys';\n$peak after \\gset\nSELECT :after - :before");
like($grown, qr/^t\n[0-3]?\d{1,4}$/, 'health() takes little memory beside them');
sql_as('app', q{SELECT queue_jobs.cancel_jobs(queue => 'long ' || n) FROM generate_series(0, 3) n});
my $fixed = sql_as('app', q{SELECT queue_jobs.enqueue('once', '{"a": 1}')});
write_keys(3, 'dedup');
restart();
is(sql_as('app', q{SELECT queue_jobs.enqueue('once', '{"a": 1}')}), $fixed, 'with a key for duplicates, they outlive all versions');

# run_due() decrypts them; by a former name of the worker they are encrypted, and one key with those of the new one.
sql_as('app', q{SELECT queue_jobs.define_worker('renamed', 'app.charge', idempotent => true, deduplicate => 'until_executed', encrypt => '{card}', encrypt_result => true, aliases => '{named}')});
is(sql_as('app', q{BEGIN;
	SELECT queue_jobs.enqueue('named', '{"card": "sesamealias", "amount": 1000}') AS renamed \gset
	SELECT queue_jobs.enqueue('renamed', '{"card": "sesamealias", "amount": 1000}') = :renamed;
	SELECT worker, args ->> 'card' ~ '^queue_jobs:encrypted:' FROM queue_jobs.job WHERE id = :renamed;
	SELECT queue_jobs.run_due('{renamed}');
	SELECT state, (SELECT count(*) FROM app.seen WHERE amount = 1000 AND card = md5('sesamealias')) FROM queue_jobs.job WHERE id = :renamed;
	ROLLBACK}), "t\nrenamed|t\n1\ncompleted|1", 'run_due() of a job with encrypted args, enqueued by an alias');

# A job gets the args of a later call, whose run has ended: it waits for the key of those, too.
write_keys(2, 'dedup');
restart();
sql_as('app', q{SELECT queue_jobs.define_worker('late', encrypt => '{a}')});
my $call = sub { return "SELECT queue_jobs.enqueue('late', '{\"a\": \"sesame$_[0]\"}', dedup_key => 'k', if_waiting => 'replace')" };
my $open = in_background($node, user => 'app');
my $early = $open->query('BEGIN; ' . $call->('early'));
write_keys(2, 3, 'dedup');
reload();
is(sql_as('app', "BEGIN; SELECT 1 FROM (" . $call->('later') . ") s; SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('a', '{late}'); COMMIT"), "1\n1", 'a later call runs beside an open one');
$open->query('COMMIT');
$open->quit;
write_keys(2, 'dedup');
restart();
is(sql_as('app', q{SELECT count(*) FROM queue_jobs.claim('a', '{late}')}), '0', 'the early job waits while the key of the later args is missing');
like(sql("SELECT reason, detail FROM queue_jobs.explain_job($early)"), qr/^encryption_key\|args of a later call.*version 3 is missing/m, '… as explain_job() says');
write_keys(1, 2, 3, 'dedup');
restart();
is(sql_as('app', q{SELECT args ->> 'a' FROM queue_jobs.claim('a', '{late}')}), 'sesamelater', 'with the key it gets them');

# ---- a command that hangs ----

# Waits until the number of processes that run it is such.
sub wait_for_commands
{
	my ($condition) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my $count;

	do
	{
		$count = grep { (eval { slurp_file($_) } // '') =~ /\Q$key_file\E/ } glob '/proc/[0-9]*/cmdline';
		return if $condition->($count);
		select undef, undef, undef, 0.05;
	} while (time <= $end);
	die "$count processes run the command";
}

# No process ever writes to the pipe, and signals that the server sends to process groups end neither the shell nor what it has started.
my $waiting = sql_as('app', q{SELECT queue_jobs.enqueue('charge', '{"card": "sesamecard", "amount": 70}', delay => '1 day')});
unlink $key_file;
mkfifo($key_file, 0600) or die "$key_file: $!";
sql(qq{ALTER SYSTEM SET queue_jobs.encryption_key_command = 'trap "" INT TERM; cat "$key_file" | cat'});
restart();
my $enqueue = q{SELECT queue_jobs.enqueue('charge', '{"card": "sesamecard", "amount": 71}')};
like(error_of($enqueue, 'app'), qr/there is no encryption key.*did not end within 10 seconds, and was killed/s, 'it waits for no more than ten seconds');
sql_as('app', q{
CREATE FUNCTION app.plain() RETURNS void LANGUAGE sql AS '';
SELECT queue_jobs.define_worker('plain', 'app.plain');
});
sql("SELECT queue_jobs.retry($waiting)");
$node->wait_for_log(qr/ executor .*no encryption keys could be read: .* did not end within 10 seconds, and was killed/);
wait_for_job($node, sql_as('app', q{SELECT queue_jobs.enqueue('plain')}), 'completed');
pass('executors go on with other jobs');
is(sql("SELECT state FROM queue_jobs_internal.job_alive WHERE id = $waiting"), 'available', '… and the job waits');
my $session = in_background($node, user => 'app');
$session->send($enqueue);
wait_for_commands(sub { $_[0] > 0 });
$node->stop;
pass('the server stops while a session waits for the command');
$session->kill_client;
wait_for_commands(sub { $_[0] == 0 });
pass('nothing that it has started is left');
unlink $key_file;
write_keys(1, 2, 3, 'dedup');
$node->start;
wait_for_job($node, $waiting, 'completed');
pass('with the keys the job runs');
sql('ALTER SYSTEM RESET queue_jobs.encryption_key_command');
reload();

# ---- ciphertext that a superuser has moved ----

sql_as('app', q{SELECT queue_jobs.define_worker('moved', 'app.charge', max_retries => 0, encrypt => '{card,note}'); SELECT queue_jobs.define_worker('taken', encrypt => '{a,b}')});
sql_as('app', q{CREATE TABLE app.twins (amount int);
	CREATE FUNCTION app.twin(card text, amount int, note text, a int, b int) RETURNS void LANGUAGE sql AS 'INSERT INTO app.twins VALUES (amount)'});
my ($x, $y, $z) = map { sql_as('app', qq{SELECT queue_jobs.enqueue('moved', '{"card": "sesamecard", "amount": $_, "note": "sesamenote"}', delay => '1 day')}) } 11, 12, 13;
sql("ALTER TABLE queue_jobs.live_job DISABLE TRIGGER ALL");
sql("UPDATE queue_jobs.live_job SET args = args || jsonb_build_object('card', (SELECT args -> 'card' FROM queue_jobs.live_job WHERE id = $y)) WHERE id = $x");
sql("UPDATE queue_jobs.live_job SET args = args || jsonb_build_object('card', args -> 'note') WHERE id = $y");
sql("UPDATE queue_jobs.live_job SET args = args || jsonb_build_object('card', overlay(args ->> 'card' placing (CASE substr(args ->> 'card', 40, 1) WHEN 'A' THEN 'B' ELSE 'A' END) from 40 for 1)) WHERE id = $z");
my $taken = sql_as('app', q{SELECT queue_jobs.enqueue('taken', '{"a": 1, "b": 2}')});
my $beside = sql_as('app', q{SELECT queue_jobs.enqueue('taken', '{"a": 3, "b": 4}')});
sql("UPDATE queue_jobs.live_job SET args = jsonb_build_object('a', args -> 'b', 'b', args -> 'a') WHERE id = $taken");
sql("ALTER TABLE queue_jobs.live_job ENABLE TRIGGER ALL");
foreach ([ $x, 'from another job' ], [ $y, 'from another key' ], [ $z, 'altered' ])
{
	sql("SELECT queue_jobs.retry($_->[0])");
	wait_for_job($node, $_->[0], 'dead');
	is(sql("SELECT errors -> 0 ->> 'sqlstate' FROM queue_jobs.job WHERE id = $_->[0]"), 'XX001', "a value $_->[1] is refused");
	like(error_of("SELECT queue_jobs.decrypt_job($_->[0])"), qr/args of job $_->[0] cannot be decrypted.*"card" was altered/s, '… and by decrypt_job()');
}
is(sql(q{SELECT count(*) FROM app.seen WHERE amount IN (11, 12, 13)}), '0', 'their handler was not called');
is(sql_as('app', q{SELECT id, args FROM queue_jobs.claim('a', '{taken}', 10)}), "$beside|{\"a\": 3, \"b\": 4}", 'a claim takes the job beside');
is(sql("SELECT state, last_error ~ 'cannot be decrypted' FROM queue_jobs.job WHERE id = $taken"), 'dead|t', '… and ends the one that was altered');

# Of two calls at the same time, one whose args were altered fails alone; the other one's job runs with its own.
foreach my $worker ('moved', 'taken')
{
	my $call = sub {
		return "SELECT queue_jobs.enqueue('$worker', '{\"card\": \"c\", \"amount\": $_[0], \"note\": \"n\", \"a\": 1, \"b\": 2}', dedup_key => 'twin', if_waiting => 'replace')" };
	sql_as('app', q{SELECT queue_jobs.define_worker('moved', 'app.twin', max_retries => 0, encrypt => '{card,note}')}) if $worker eq 'moved';
	sql("SELECT queue_jobs.pause('$worker')");
	my $other = in_background($node, user => 'app');
	my $first = $other->query('BEGIN; ' . $call->(21));
	my $second = sql_as('app', $call->(22));
	$other->query('COMMIT');
	$other->quit;
	sql("ALTER TABLE queue_jobs.live_job DISABLE TRIGGER ALL");
	my ($one, $two) = $worker eq 'moved' ? qw(card note) : qw(a b);
	sql("UPDATE queue_jobs.live_job SET args = args || jsonb_build_object('$one', args -> '$two', '$two', args -> '$one') WHERE id = $second");
	sql("ALTER TABLE queue_jobs.live_job ENABLE TRIGGER ALL");
	sql("SELECT queue_jobs.resume('$worker')");
	if ($worker eq 'moved')
	{
		wait_for_job($node, $first, 'completed');
		wait_for_job($node, $second, 'dead');
		is(sql('SELECT amount FROM app.twins'), '21', 'an executor runs the job whose args are whole');
	}
	else
	{
		is(sql_as('app', q{SELECT args ->> 'amount', queue_jobs.complete(id, attempt) FROM queue_jobs.claim('a', '{taken}', 10)}), '21|', 'a claim takes the job whose args are whole');
		is(sql_as('app', q{SELECT count(*) FROM queue_jobs.claim('a', '{taken}', 10)}), '0', '… and the next one none');
	}
	is(sql("SELECT state, errors -> 0 ->> 'sqlstate' FROM queue_jobs.job WHERE id = $second"), 'dead|XX001', '… and the one that was altered is dead');
}

# ---- dump and restore ----

my $kept = sql_as('app', q{SELECT queue_jobs.enqueue('charge', '{"card": "sesamecard", "amount": 50}', delay => '1 day')});
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
$node->run_log([ 'pg_dump', '-h', $node->host, '-p', $node->port, '-f', $dump, 'postgres' ]);
my $dumped = slurp_file($dump);
like($dumped, qr/queue_jobs:encrypted:3:/, 'a dump has the ciphertext');
unlike($dumped, qr/sesame[a-z]/, '… and no args');
my $other = new_node('restored', extension => 0, conf => "queue_jobs.encryption_key_command = 'cat \"$key_file\"'\nlog_statement = none");
$other->safe_psql('postgres', 'CREATE ROLE app LOGIN IN ROLE pg_read_all_data; CREATE ROLE app_reader; CREATE ROLE stranger; CREATE DATABASE restored');
$other->safe_psql('restored', 'CREATE EXTENSION queue_jobs; DROP EXTENSION queue_jobs');
$other->run_log([ 'psql', '-X', '-q', '-h', $other->host, '-p', $other->port, '-d', 'restored', '-f', $dump ]);
$other->safe_psql('restored', "SELECT queue_jobs.retry($kept)");
wait_until($other, "SELECT count(*) = 1 FROM app.seen WHERE job = $kept AND card = md5('sesamecard')", db => 'restored');
pass('restored, the job is read with the same keys');
$other->stop;

# ---- a standby, promoted ----

$node->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'copy', has_streaming => 1);
$standby->start;
my $moved_on = sql_as('app', q{SELECT queue_jobs.enqueue('charge', '{"card": "sesamecard", "amount": 60}', delay => '1 day')});
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is($standby->safe_psql('postgres', "SELECT args ->> 'card' ~ '^queue_jobs:encrypted:3:' FROM queue_jobs.job WHERE id = $moved_on"), 't', 'a standby has ciphertext');
is($standby->safe_psql('postgres', "SELECT args ->> 'card' FROM queue_jobs.decrypt_job($moved_on)"), 'sesamecard', '… which a standby with the keys can read');

# ---- nothing on disk ----

sql('CHECKPOINT');
$node->stop;
$standby->promote;
$standby->safe_psql('postgres', "SELECT queue_jobs.retry($moved_on)");
wait_for_job($standby, $moved_on, 'completed');
pass('promoted, it goes on');
$standby->stop;
my @found = files_with_secrets($node->data_dir, $standby->data_dir, $other->data_dir, glob(dirname($node->logfile) . '/job_encryption_*.log'));
is("@found", '', 'no secret is in a data directory, in the WAL or in a log');

done_testing();
