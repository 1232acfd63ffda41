/*
 * charge.h
 *		Jobs whose run has ended without them, in a crash, an error of the commit or the end of a claimant's
 *		session: a process is about to charge them for that, and no claim may start them before.
 */
#ifndef QUEUE_JOBS_CHARGE_H
#define QUEUE_JOBS_CHARGE_H

#include "job.h"

/* Whether the run of the job is one of these. */
extern bool charge_awaited(const Job *job);

/* Whether it is one whose claimant's session has ended, or crashed. */
extern bool charge_under_way(int64 job);

/* Whether it may become one: its executor may have crashed, or failed to commit. */
extern bool charge_possible(const Job *job);

/*
 * This process is about to charge all jobs of the database between two ids: no claim may take one between the
 * rollback and the charge. A claim that passes one by looks again after lane_hints_void(). (One that has
 * asked just before the rollback may still take it, and then it is not charged.)
 */
extern void charge_begin(int64 first, int64 last);

/* False if there was none under way. */
extern bool charge_end(void);

/* Called while the library is being preloaded. */
extern void charges_init(void);

#endif
