/*
 * candidate_look.h
 *		Updates the candidates from what the lanes' hints say. Where the hints of all lanes do not have room,
 *		also from the index of jobs.
 */
#ifndef QUEUE_JOBS_CANDIDATE_LOOK_H
#define QUEUE_JOBS_CANDIDATE_LOOK_H

#include "candidate_heap.h"

/* Looks at all that has changed since the last look. Needs a transaction. */
extern void candidates_look(Candidates *candidates, TimestampTz now);

/* Looks at the hint of one lane. Returns false, and learns nothing, if the lane has no hint. */
extern bool candidate_look(Candidates *candidates, Candidate *candidate);

/* Has the next claim walk over a lane without a hint from its beginning. */
extern void candidate_look_without_hint(Candidates *candidates, Candidate *candidate);

/*
 * Returns when a lane may have a job to claim though no process says so, or DT_NOEND. The caller may be
 * outside a transaction: the function then returns the present, too, if it would have to look into tables to
 * know.
 */
extern TimestampTz candidates_next_revisit(Candidates *candidates);

#endif
