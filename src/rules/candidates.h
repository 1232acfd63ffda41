/*
 * candidates.h
 *		The lanes that a process takes jobs from, and which of them goes first (fairness.h).
 *
 * Of a lane that no claim looks into, only its hint is known: no job of it stands before the hint's cursor.
 * That is enough until it seems to be its turn. Then the lane is opened, and if its first job stands behind
 * that of another one, it has to wait after all. So a claim opens about as many lanes as it takes jobs from,
 * and looks at the hints that have changed since the last one, however many lanes there are.
 *
 * A lane becomes known when its hint shows that it may have jobs. Of lanes for which there is no room for
 * hints (lane_hint.h), the index of jobs is asked: at first, and then for some of them at a time, as long as
 * anything is lost. Such a lane is gone through from its begin; when no job is left in it, it is at rest
 * until it is found again.
 */
#ifndef QUEUE_JOBS_CANDIDATES_H
#define QUEUE_JOBS_CANDIDATES_H

#include "candidate_heap.h"
#include "candidate_look.h"
#include "live_table.h"

/* The outcome for a job that was tried. */
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
	 * Tries the job that candidate->walk shows. If it sets "enough", the walk is over; a job that it has not
	 * taken then counts as not tried.
	 */
	Tried		(*attempt) (struct ClaimWalk *walk, Candidate *candidate);
	void	   *argument;
	bool		look;			/* the walk takes no job, and uses up no turn */

	/*
	 * If this walk takes no job of a lane, the next one goes on after the jobs that this one has tried
	 * there, instead of where this one began.
	 */
	bool		tells_tried;
	bool		reads_on;		/* it reads the lane of the last job on, and sets "rest" */
	bool		enough;
	/* or NULL: lanes that may have more jobs, that of the last job taken and another */
	Candidate  *rest[2];
} ClaimWalk;

/*
 * Goes on until walk->enough, or no lane has a further job, and then settles in the lanes' hints what it has
 * found out. The walk lives in the current memory context. Returns how many jobs were taken.
 */
extern int	candidates_walk(Candidates *candidates, LiveTable *table, TimestampTz now, ClaimWalk *walk);

#endif
