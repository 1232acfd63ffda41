\echo Use "ALTER EXTENSION queue_jobs UPDATE" to load this file. \quit
