/*
 * executor_demand.h
 *		Executors for the jobs that can run. Only the scheduler of a database calls it.
 */
#ifndef QUEUE_JOBS_EXECUTOR_DEMAND_H
#define QUEUE_JOBS_EXECUTOR_DEMAND_H

#include "datatype/timestamp.h"

/* The result of a look at the lanes and the executors. */
typedef struct DemandFound
{
	bool		enough;			/* executors; or there is more work than they are allowed to be */
	bool		blocked;		/* lanes have jobs that cannot start: no handler, role or pool for them */
	bool		busy;			/* there is work, or an executor does it */
	bool		attended;		/* there are executors, if idle ones */
	bool		unserved;		/* jobs have no executor */
	bool		lacks_slot;		/* jobs have no executor, for want of a worker slot */
	TimestampTz next_revisit;	/* when a limit lets jobs of some lane start; DT_NOEND */
	TimestampTz look_again_at;	/* for executors' sake; DT_NOEND */
} DemandFound;

/*
 * Looks for jobs that no executor is at work for, and wakes an idle executor or starts one for each kind of
 * them; where there is no room, asks another to leave. Tells lanes which pools serve them. In a transaction,
 * and the current memory context.
 */
extern DemandFound demand_provide(TimestampTz now);

/* Has all executors of this database leave after their jobs, as none is wanted. */
extern DemandFound demand_dismiss(void);

#endif
