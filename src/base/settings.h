/*
 * settings.h
 *		Every setting. settings.c is the only file that defines one.
 */
#ifndef QUEUE_JOBS_SETTINGS_H
#define QUEUE_JOBS_SETTINGS_H

#include "utils/guc.h"

typedef enum LogJobs
{
	LOG_JOBS_NONE,
	LOG_JOBS_FAILURES,
	LOG_JOBS_ALL,
} LogJobs;

extern char *queue_jobs_context;
extern int	queue_jobs_max_executors;
extern int	queue_jobs_max_executors_per_database;
extern int	queue_jobs_max_executors_per_role;
extern char *queue_jobs_pools;
extern int	queue_jobs_max_databases;
extern int	queue_jobs_max_lanes;
extern int	queue_jobs_max_dead_jobs;
extern int	queue_jobs_idle_timeout;
extern bool queue_jobs_synchronous_commit;
extern bool queue_jobs_run;
extern int	queue_jobs_log_jobs;
extern char *queue_jobs_encryption_key_command;
extern int	queue_jobs_replica_timeout;
extern int	queue_jobs_replica_read_timeout;

/* check_pools: of the setting queue_jobs.pools, which names what only higher floors know. */
extern void settings_define(GucStringCheckHook check_pools);

#endif
