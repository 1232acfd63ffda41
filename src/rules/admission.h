/*
 * admission.h
 *		Whether a job can be started now, and its start: the one way by which executors, claim() and
 *		wait_for_jobs() come to a job.
 *
 * The steps are these. Each only tries, and when a step refuses the job, those before it are undone.
 *
 *	1. There is a key for all that its run must decrypt or encrypt (encrypted_job.h).
 *	2. The limits of its worker have a slot, and a start (limit.h).
 *	3. An executor shows the job, before it has any lock on it: a session that finds the job locked then knows
 *	   by which process.
 *	4. No process is about to charge the job for the end of an earlier run (crash_ledger.h).
 *	5. Its key and the hold on it (dedup.h). From here on no transaction can rely on the job, so that its
 *	   location is known (location.h).
 *	6. Its row. An executor deletes it, or writes a lease for a handler that may commit. A claimant first
 *	   decides whether a replica has caught up, and then writes its lease.
 *	7. Jobs of its key that wait are merged into its run, and its location is read again: a transaction may
 *	   have raised it until step 5.
 *
 * A job that has expired is taken all the same, and only to be ended: steps 1, 2 and 7 do not concern it. (A
 * claimant has ended it before.)
 */
#ifndef QUEUE_JOBS_ADMISSION_H
#define QUEUE_JOBS_ADMISSION_H

#include "candidates.h"
#include "limit.h"

/*
 * A job that may be started. The caller sets the members from kind to role, and "at" to the present; the
 * others are zero at first.
 */
typedef struct Start
{
	const struct StartKind *kind;
	void	   *argument;		/* for its functions */
	LiveTable  *table;
	const Candidate *candidate; /* whose walk shows the job */
	Job		   *job;
	Oid			role;			/* of the executor, or InvalidOid */
	TimestampTz at;				/* now; or when the rate of its worker lets it start, if that is later */
	bool		expired;
	LimitHold	limits;
} Start;

/* The steps that a process takes in its own way. Each function except take_row may be NULL. */
typedef struct StartKind
{
	/* After step 1. False if the job cannot be run, and was ended. */
	bool		(*prepare) (Start *start);

	/* Step 3, and how it is undone. */
	void		(*show) (Start *start);
	void		(*unshow) (Start *start);

	/* Step 6. False, and the row may be changed, if the job is not started. */
	bool		(*take_row) (Start *start);

	/* Between that and step 7: what must be noted before an error can undo the start. */
	void		(*taken) (Start *start);
} StartKind;

/*
 * Starts the job, if it can be. Locks last until the transaction ends. start->at, expired and limits are set;
 * of the job its wal_lsn, what dedup_collapse() changes, and what take_row writes.
 */
extern Tried start_try(Start *start);

/*
 * Whether start_try() would come to the job's row; all locks are released. (In a lane that has a hint, steps
 * 4 and 5 are not tried: claims tell the hint which jobs they pass by.) kind is not used.
 */
extern bool start_possible(Start *start, Tried *otherwise);

#endif
