\set id random(1, 1000)
\set few random(1, 5)
\set delay random(0, 20)
BEGIN;
SELECT queue_jobs.enqueue('kept', jsonb_build_object('id', :id::int));
SELECT queue_jobs.enqueue('gone', jsonb_build_object('id', :id::int));
SELECT queue_jobs.enqueue('once', jsonb_build_object('id', :few::int));
SELECT queue_jobs.enqueue('claimed', jsonb_build_object('id', :id::int));
COMMIT;
SELECT queue_jobs.enqueue('failing', jsonb_build_object('id', :id::int));
SELECT queue_jobs.enqueue('procedure', jsonb_build_object('id', :id::int));
SELECT queue_jobs.enqueue('limited', jsonb_build_object('id', :id::int), delay => make_interval(secs => :delay));
SELECT count(queue_jobs.complete(id, attempt)) FROM queue_jobs.claim('soak ' || :client_id, '{claimed}', 3);
