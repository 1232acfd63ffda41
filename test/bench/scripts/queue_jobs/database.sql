-- A database with the extension, in which the role app may define workers.
CREATE EXTENSION queue_jobs;
SELECT format('GRANT CREATE ON DATABASE %I TO app', current_database()) \gexec
GRANT CREATE ON SCHEMA public TO app;
