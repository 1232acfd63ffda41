/*
 * scheduler_limit.h
 *		How many schedulers there may be at once, so that executors find worker slots, and which databases
 *		wait for their first executor.
 *
 * A database at work needs its executors all the time, and its scheduler now and then. So a scheduler whose
 * jobs have executors makes way for that of another database, and comes back when there is something to do.
 */
#ifndef QUEUE_JOBS_SCHEDULER_LIMIT_H
#define QUEUE_JOBS_SCHEDULER_LIMIT_H

#include "database_slot.h"

/* At once. Of max_worker_processes, executors have theirs, the launcher, and the server. */
extern int	schedulers_most(void);

/* At work or being started. */
extern int	schedulers_count(void);

/* So many are at work that one which is not needed right now makes way. */
extern bool schedulers_crowded(void);

/* The scheduler that has looked tells whether jobs of its database have no executor. */
extern void schedulers_tell_want(DatabaseSlot *slot, bool wants, TimestampTz now);

/* Other databases whose jobs have no executor; "longer": and have had none for longer. */
extern int	schedulers_waiting(const DatabaseSlot *slot, bool longer, TimestampTz now);

#endif
