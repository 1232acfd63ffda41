/*
 * engine_state.h
 *		Whether the engine runs jobs in this database, and why no executor takes those of a role now, whatever
 *		lane they are in.
 */
#ifndef QUEUE_JOBS_ENGINE_STATE_H
#define QUEUE_JOBS_ENGINE_STATE_H

#include "lane.h"

/*
 * The setting queue_jobs.run as it is now for this database: of ALTER DATABASE, or else of the configuration.
 * A session's own value is that of when it began. Off while the server is held read-only
 * (shared_read_only()). In a transaction.
 */
extern bool engine_runs(void);

/*
 * The next reason, as lane_blocked_next() has it; NULL after the last. (What is missing for the jobs of a
 * lane: lane_blocked().)
 */
extern const char *engine_blocked_next(Oid role, int *check, WaitReason *reason);

#endif
