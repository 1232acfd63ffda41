/*
 * release.h
 *		Looks at waiting jobs: whether that for which they wait has come.
 */
#ifndef QUEUE_JOBS_RELEASE_H
#define QUEUE_JOBS_RELEASE_H

#include "store.h"

/*
 * Looks at a job: if all that it waits for has come, it waits no longer. Returns how many jobs have to end at
 * least before the next look can find otherwise; 0: it does not wait for jobs, or its row is locked
 * (*locked).
 */
extern int64 release_look(int64 child, bool *locked);

#endif
