/*
 * saved_step.h
 *		Steps that runs of a job have gone through, with their results: the table saved_step.
 */
#ifndef QUEUE_JOBS_SAVED_STEP_H
#define QUEUE_JOBS_SAVED_STEP_H

#include "utils/jsonb.h"

/*
 * A step's result in the current memory context, NULL if it is null; false if the job has no step of that
 * name.
 */
extern bool saved_step_find(int64 job, const char *name, Jsonb **value);

/* Whether the job has a step of any name. */
extern bool saved_step_any(int64 job);

/* False, and nothing is done, if the job has a step of that name. */
extern bool saved_step_add(int64 job, const char *name, Jsonb *value);

/* All of them, an object of their values by name. */
extern Jsonb *saved_steps_of(int64 job);

/* Those of jobs that are kept no longer go. */
extern void saved_steps_trim(void);

#endif
