-- Plain CREATE: a schema of that name made by another role beforehand is not adopted.
CREATE SCHEMA queue_jobs;
COMMENT ON SCHEMA queue_jobs IS 'job queue inside the database';
