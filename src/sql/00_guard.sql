\echo Use "CREATE EXTENSION queue_jobs" to load this file. \quit
