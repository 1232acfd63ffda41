-- Options of encryption, and what is refused; no key is set here. (t/job_encryption.pl: everything with keys.)
SET ROLE regress_app;
SET search_path = app, helper;
-- A library that was built without OpenSSL's headers refuses them all, and nothing else (encrypt_1.out).
SELECT sqlstate_of($$SELECT queue_jobs.define_worker('sealed', encrypt_result => true)$$) = '0A000' AS cannot_encrypt \gset
\if :cannot_encrypt
SELECT error_of($$SELECT queue_jobs.define_worker('sealed', encrypt => '{card}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('sealed', encrypt_result => true)$$);
SELECT queue_jobs.define_worker('sealed', encrypt => '{}', encrypt_result => false);
SELECT queue_jobs.drop_worker('sealed');
\quit
\endif
CREATE FUNCTION sealed(card text) RETURNS text LANGUAGE sql AS 'SELECT card';
SELECT queue_jobs.define_worker('sealed', 'app.sealed', encrypt => '{card,"a key"}', encrypt_result => true, loggable_args => '{plan}', concurrency_key => 'plan', concurrency_limit => 1);
SELECT queue_jobs.define_worker('sealed whole', encrypt => '{*}');
SELECT queue_jobs.define_worker('sealed result', 'app.sealed', encrypt_result => true);
SELECT queue_jobs.define_worker('clear', 'app.sealed');
SELECT name, encrypt, encrypt_result FROM queue_jobs.worker WHERE name LIKE 'sealed%' OR name = 'clear' ORDER BY name;

-- What does not go together, or is no name.
SELECT error_of($$SELECT queue_jobs.define_worker('x', encrypt => NULL)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('x', encrypt_result => NULL)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('x', encrypt => '{NULL}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('x', encrypt => '{""}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('x', encrypt => '{*,card}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('x', encrypt => ARRAY[E'a\nb'])$$);
SELECT error_of($$SELECT queue_jobs.define_worker('x', encrypt => ARRAY(SELECT 'key ' || n FROM generate_series(1, 200) n))$$);
SELECT error_of($$SELECT queue_jobs.define_worker('x', encrypt => '{card}', loggable_args => '{plan,card}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('x', encrypt => '{*}', loggable_args => '{plan}')$$);
SELECT error_of($$SELECT queue_jobs.define_worker('x', encrypt => '{b}', concurrency_key => 'a, b', concurrency_limit => 1)$$);
SELECT error_of($$SELECT queue_jobs.define_worker('x', encrypt => '{*}', concurrency_key => 'a', concurrency_limit => 1)$$);
CREATE TABLE sealed_records (id int PRIMARY KEY, pending boolean);
SELECT error_of($$SELECT queue_jobs.define_worker('x', encrypt => '{id}', record => 'app.sealed_records', record_key => 'id', pending => 'pending')$$);
SELECT queue_jobs.define_worker('sealed record', encrypt => '{card}', record => 'app.sealed_records', record_key => 'id', pending => 'pending');
SELECT error_of($$SELECT queue_jobs.define_worker('x', encrypt => '{card}', max_running_jobs => 1, remaining_work => 'SELECT NULL::jsonb')$$);
SELECT name FROM queue_jobs.worker WHERE name = 'x';

-- Without a key nothing is enqueued that would have to be encrypted, and nothing is left; other workers do not mind.
SELECT error_of($$SELECT queue_jobs.enqueue('sealed', '{"card": "1"}')$$);
SELECT error_of($$SELECT queue_jobs.try_enqueue('sealed whole', '5')$$);
SELECT error_of($$SELECT * FROM queue_jobs.enqueue_many('sealed', ARRAY['{"card": "1"}']::jsonb[])$$);
SELECT error_of($$SELECT queue_jobs.enqueue('sealed', '["card"]')$$);
SELECT count(*) FROM queue_jobs.job WHERE worker LIKE 'sealed%';
SELECT error_of($$SELECT queue_jobs.schedule('sealed', '@daily', 'sealed', '{"card": "1"}')$$);
SELECT error_of($$SELECT queue_jobs.new_batch(on_success => 'sealed', args => '{"card": "1"}')$$);
SELECT error_of($$SELECT queue_jobs.new_batch(on_ended => 'sealed whole', args => '{"n": 1}')$$);
SELECT error_of($$SELECT queue_jobs.enqueue_workflow('w', '[{"step": "a", "worker": "clear", "args": {"card": "1"}}]', on_dead => 'sealed', args => '{"a key": 1}')$$);

-- A job whose result is to be encrypted waits for a key, and says so; and so does one in clear of a worker that was defined again.
SELECT queue_jobs.enqueue('sealed result', '{"card": "1"}') AS job \gset
SELECT reason, detail, hint FROM queue_jobs.explain_job(:job) WHERE n = 1;
SELECT waits_for FROM queue_jobs.job WHERE id = :job;
RESET ROLE;
SELECT ok, value, advice FROM queue_jobs.health() WHERE name = 'encryption_keys';
SET ROLE regress_app;
SELECT queue_jobs.define_worker('sealed result');
SELECT count(*) FROM queue_jobs.claim('me', '{sealed result}');
SELECT queue_jobs.remove_jobs('sealed result');

-- decrypt_job() of a job in clear, of none, and of another role's.
SELECT queue_jobs.enqueue('clear', '{"card": "queue_jobs:encrypted:1:none"}') AS job \gset
CALL wait_for_worker('clear');
SELECT state, result FROM queue_jobs.job WHERE id = :job;
SELECT * FROM queue_jobs.decrypt_job(:job);
SELECT * FROM queue_jobs.decrypt_job(0);
SELECT error_of($$SELECT queue_jobs.decrypt_job(NULL)$$);
RESET ROLE;
SET ROLE regress_other;
SELECT regexp_replace(error_of(format('SELECT queue_jobs.decrypt_job(%s)', :job)), '\d{2,}', 'N', 'g');
RESET ROLE;
SET ROLE regress_app;
SELECT error_of($$SET queue_jobs.encryption_key_command = 'true'$$);
SELECT queue_jobs.drop_worker(name) FROM queue_jobs.worker WHERE name LIKE 'sealed%' OR name = 'clear';
DROP FUNCTION sealed(text);
DROP TABLE sealed_records;
