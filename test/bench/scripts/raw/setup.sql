-- The yardsticks: plain tables. job has the columns of queue_jobs' own table of waiting jobs, and one index.
CREATE SCHEMA raw;
CREATE TABLE raw.job (LIKE queue_jobs.live_job, PRIMARY KEY (id));
CREATE TABLE raw.unique_job (LIKE queue_jobs.live_job, PRIMARY KEY (id), UNIQUE (dedup_key));
CREATE SEQUENCE raw.job_id;

-- One row for each update, picked at random; also what the handlers that update a row work on.
CREATE TABLE raw.counter (id int PRIMARY KEY, n int NOT NULL) WITH (fillfactor = 50);
INSERT INTO raw.counter SELECT i, 0 FROM generate_series(1, 100000) AS i;

GRANT USAGE ON SCHEMA raw TO app;
GRANT ALL ON ALL TABLES IN SCHEMA raw TO app;
GRANT ALL ON ALL SEQUENCES IN SCHEMA raw TO app;
