/*
 * candidates.h
 *		A claim's walk over the lanes that a process takes jobs from, in the order in which they have their
 *		turns (candidate_heap.h).
 *
 * As long as no claim looks into a lane, the process knows only its hint: no job of the lane stands before
 * the hint's cursor. That is enough until the lane seems to be next. Then the claim opens the lane. If the
 * first job stands behind that of another lane, the lane has to wait after all. So a claim opens about as
 * many lanes as it takes jobs from, and looks at the hints that have changed since the last claim, however
 * many lanes there are.
 *
 * A process gets to know a lane when the lane's hint shows that it may have jobs. Lanes for whose hints there
 * is no room (lane_hint.h) the process finds in the index of jobs: at first, and then a few at a time, as
 * long as any hint is lost. The process walks over such a lane from its beginning. When the lane has no job
 * left, the process leaves it alone until it finds the lane in the index again.
 */
#ifndef QUEUE_JOBS_CANDIDATES_H
#define QUEUE_JOBS_CANDIDATES_H

#include "candidate_heap.h"
#include "live_table.h"

/* ---- what hints tell ---- */

/*
 * Updates the candidates from what the lanes' hints say. Where the hints of all lanes do not have room,
 * also from the index of jobs.
 */

/*
 * Returns when a lane may have a job to claim though no process says so, or DT_NOEND. The caller may be
 * outside a transaction: the function then returns the present, too, if it would have to look into tables to
 * know.
 */
extern TimestampTz candidates_next_revisit(Candidates *candidates);

/* Outcomes of an attempt to take a job. */
typedef enum Tried
{
	TRIED_TAKEN,
	TRIED_PASSED_BY,
	TRIED_LANE_PASSED_BY,		/* no other job of the lane could be taken now, either */
} Tried;

/* A walk over the jobs of all lanes, in the order in which a claim must take them. */
typedef struct ClaimWalk
{
	/*
	 * Tries to take the job that candidate->walk shows. If the function sets "enough", the walk ends; a job
	 * that the function has not taken then counts as not tried.
	 */
	Tried		(*attempt) (struct ClaimWalk *walk, Candidate *candidate);
	void	   *argument;
	bool		look;			/* this walk takes no job, and uses up no turn */

	/*
	 * If this walk takes no job of a lane, the next walk begins there after the jobs that this one has tried,
	 * instead of where this one began.
	 */
	bool		tells_tried;
	bool		reads_on;		/* the walk reads on in the last job's lane, and sets "rest" */
	bool		enough;
	/* lanes that may have more jobs: the last job's and another one, or NULL */
	Candidate  *rest[2];
} ClaimWalk;

/*
 * Walks until walk->enough, or until no lane has a further job. Then writes into the lanes' hints what the
 * walk has found out. The walk lives in the current memory context. Returns how many jobs it took.
 */
extern int	candidates_walk(Candidates *candidates, LiveTable *table, TimestampTz now, ClaimWalk *walk);

#endif
