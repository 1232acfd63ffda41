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
#include "limit.h"
#include "live_table.h"

/* A claim begins; it lives in the current memory context, and ends with candidates_end(). */
extern void candidates_begin(Candidates *candidates, LiveTable *table, TimestampTz now);

/*
 * The candidate whose walk has the next job, or NULL if there is none; "look" if it is not to be taken: then
 * no turn is used up.
 */
extern Candidate *candidates_first(Candidates *candidates, bool look);

/* The candidate's job was tried, and taken or not. */
extern void candidates_tried(Candidates *candidates, Candidate *candidate, bool taken);

/*
 * To the next job of the candidate's lane, if there is one and the verdict on the last one does not hold for
 * all of the worker's.
 */
extern void candidates_advance(Candidate *candidate, LimitVerdict verdict);

/* Another candidate that has work, as far as is known, or NULL. */
extern Candidate *candidates_other(Candidates *candidates, const Candidate *taken);

/*
 * The claim is over: what it has found out is settled in the lanes' hints. Without "tried" a lane of which no
 * job was taken is looked at again from where this claim began, instead of from after the jobs that it has
 * tried.
 */
extern void candidates_end(Candidates *candidates, bool tried);

#endif
