-- Plain CREATE: a schema of that name made by another role beforehand is not adopted.
CREATE SCHEMA queue_jobs;
COMMENT ON SCHEMA queue_jobs IS 'job queue inside the database';
-- For what views and functions are made of. A view finds it without a right on the schema, so no role gets USAGE.
CREATE SCHEMA queue_jobs_internal;
COMMENT ON SCHEMA queue_jobs_internal IS 'what the views and functions of the schema queue_jobs are made of';
