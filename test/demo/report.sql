\pset footer off

\echo
\echo Per worker (queueing: from enqueue or due time to the start, first attempts only)
SELECT worker,
       count(*) AS jobs,
       count(*) FILTER (WHERE state = 'completed') AS completed,
       count(*) FILTER (WHERE state = 'dead') AS dead,
       round((extract(epoch FROM avg(started_at - greatest(created_at, run_at)) FILTER (WHERE attempt = 1)) * 1000)::numeric, 1)
           AS avg_queueing_ms,
       round((count(*) / nullif(extract(epoch FROM max(finished_at) - min(started_at)), 0))::numeric) AS jobs_per_s
FROM queue_jobs.job
GROUP BY worker
ORDER BY worker;

\echo The dead: tried as often as their worker allows, kept with the reason, to be retried by queue_jobs.retry(id)
SELECT id, worker, args, attempt, max_attempts, last_error
FROM queue_jobs.job
WHERE state = 'dead'
ORDER BY id
LIMIT 5;

\echo Some mails, and what their jobs returned
SELECT m.id AS mail, m.subject, m.times_sent, j.state, j.result
FROM app.outbox AS m
JOIN queue_jobs.job AS j ON j.worker = 'send_mail' AND j.args = jsonb_build_object('mail_id', m.id)
ORDER BY m.id
LIMIT 5;

\echo Exactly once: each of the 2,000 orders charged once, each mail sent once, nothing of the one rolled back
SELECT orders, charged_once, sent_once, CASE WHEN ok THEN 'yes' ELSE 'NO' END AS "exactly once" FROM app.verdict;
