/*
 * job_signal.h
 *		Signals that were sent to jobs, with their payloads: the table job_signal.
 */
#ifndef QUEUE_JOBS_JOB_SIGNAL_H
#define QUEUE_JOBS_JOB_SIGNAL_H

#include "utils/jsonb.h"

/* False, and nothing is done, if the job has a signal of that name. Waits for another sender of it. */
extern bool job_signal_add(int64 job, const char *name, Jsonb *payload);

/* In the current memory context; NULL if the job has no signal of that name. */
extern Jsonb *job_signal_payload(int64 job, const char *name);

/* Whether the job has a signal of any name. */
extern bool job_signal_any(int64 job);

/* The same, or another transaction is sending it one. */
extern bool job_signal_any_to_come(int64 job);

/* All of them, an object of their payloads by name. */
extern Jsonb *job_signals_of(int64 job);

#endif
