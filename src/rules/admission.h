/*
 * admission.h
 *		Decides whether a job can start now, and starts it. Executors, claim() and wait_for_jobs() come to a
 *		job in no other way.
 *
 * start_try() takes these steps. Each step only tries. When a step refuses the job, start_try() undoes the
 * steps before it.
 *
 *	1. The process has every key that it needs to decrypt and encrypt what the run has (encrypted_job.h).
 *	2. The limits of the job's worker have a slot and a start for the job (limit.h).
 *	3. An executor shows the job in its slot before it has any lock on the job: a session that finds the job
 *	   locked then knows which process has it.
 *	4. No process is about to charge the job for the end of an earlier run (crash_ledger.h).
 *	5. The process gets the job's key, and a hold on the job (dedup.h). From here on no transaction can rely
 *	   on the job, so that its location is known (location.h).
 *	6. The process takes the job's row. An executor deletes the row, or writes a lease for a handler that may
 *	   commit. A claimant first decides whether a replica has caught up, and then writes its lease.
 *	7. The process merges waiting jobs of the same key into the run, and reads the location again: a
 *	   transaction may have raised it until step 5.
 *
 * start_try() takes an expired job, too, so that the caller can end it. start_try() then skips steps 1 and 2,
 * and merges no other job into it. (Claimants end expired jobs before they come here.)
 */
#ifndef QUEUE_JOBS_ADMISSION_H
#define QUEUE_JOBS_ADMISSION_H

#include "candidates.h"
#include "limit.h"

/*
 * A job that may start. The caller sets the members from kind to role, sets "at" to the present, and leaves
 * the others zero.
 */
typedef struct Start
{
	const struct StartKind *kind;
	void	   *argument;		/* passed on to the functions of kind */
	LiveTable  *table;
	const Candidate *candidate; /* whose walk shows the job */
	Job		   *job;
	Oid			role;			/* of the executor, or InvalidOid */
	TimestampTz at;				/* now, or later: when the rate of its worker lets the job start */
	bool		expired;
	LimitHold	limits;
} Start;

/*
 * The steps that executors and claimants take each in their own way. Each function except take_row may be
 * NULL.
 */
typedef struct StartKind
{
	/* Called after step 1. Returns false if the job cannot run; the function has then ended it. */
	bool		(*prepare) (Start *start);

	/* Take and undo step 3. */
	void		(*show) (Start *start);
	void		(*unshow) (Start *start);

	/* Takes step 6. Returns false if the job does not start; the function may have changed the row. */
	bool		(*take_row) (Start *start);

	/* Called between steps 6 and 7. Notes what others must learn even if an error undoes the start. */
	void		(*taken) (Start *start);
} StartKind;

/*
 * Starts the job, if it can start. Locks last until the transaction ends. Sets start->at, expired and limits,
 * and changes these members of the job: wal_lsn, those that dedup_collapse() changes, and those that take_row
 * writes.
 */
extern Tried start_try(Start *start);

/*
 * Returns whether start_try() would come as far as the job's row, and releases all locks. In a lane that has
 * a hint this does not try steps 4 and 5, because claims tell the hint which jobs they pass by. The caller
 * leaves start->kind NULL.
 */
extern bool start_possible(Start *start, Tried *otherwise);

#endif
