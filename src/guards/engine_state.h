/*
 * engine_state.h
 *		Whether the engine runs jobs in this database, and why no executor takes jobs of a role now, whatever
 *		their lane.
 */
#ifndef QUEUE_JOBS_ENGINE_STATE_H
#define QUEUE_JOBS_ENGINE_STATE_H

#include "lane.h"

/*
 * Returns the present value of queue_jobs.run for this database: that of ALTER DATABASE, or else of the
 * configuration. (A session's own value is as old as the session.) Returns false while the server is
 * read-only (shared_read_only()). Needs a transaction.
 */
extern bool engine_runs(void);

/*
 * Returns the next reason, as lane_blocked_next() does; NULL after the last. lane_blocked() has the reasons
 * that concern a lane.
 */
extern const char *engine_blocked_next(Oid role, int *check, WaitReason *reason);

#endif
