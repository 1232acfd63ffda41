/*
 * settings.h
 *		Every setting. settings.c is the only file that defines one.
 */
#ifndef QUEUE_JOBS_SETTINGS_H
#define QUEUE_JOBS_SETTINGS_H

typedef enum LogJobs
{
	LOG_JOBS_NONE,
	LOG_JOBS_FAILURES,
	LOG_JOBS_ALL,
} LogJobs;

extern char *queue_jobs_context;
extern int	queue_jobs_max_executors;
extern int	queue_jobs_max_executors_per_database;
extern char *queue_jobs_pools;
extern int	queue_jobs_max_databases;
extern int	queue_jobs_max_lanes;
extern int	queue_jobs_idle_timeout;
extern bool queue_jobs_synchronous_commit;
extern int	queue_jobs_log_jobs;
extern int	queue_jobs_replica_timeout;
extern int	queue_jobs_replica_read_timeout;

extern void settings_define(void);

#endif
