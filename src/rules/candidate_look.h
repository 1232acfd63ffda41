/*
 * candidate_look.h
 *		What the lanes' hints tell of them, and (where there is no room for the hints of all) the index of
 *		jobs.
 */
#ifndef QUEUE_JOBS_CANDIDATE_LOOK_H
#define QUEUE_JOBS_CANDIDATE_LOOK_H

#include "candidate_heap.h"

/* At all that has changed since the last look; needs a transaction. */
extern void candidates_look(Candidates *candidates, TimestampTz now);

/* At the hint of one. False, and nothing new is known, if the lane has no hint. */
extern bool candidate_look(Candidates *candidates, Candidate *candidate);

/* A lane without a hint is gone through from its beginning. */
extern void candidate_look_without_hint(Candidates *candidates, Candidate *candidate);

/*
 * When a lane may have a job to claim though nothing happens, or DT_NOEND. Outside a transaction, too: then
 * also now, if there may be something for whose sake it is to be looked into tables.
 */
extern TimestampTz candidates_next_revisit(Candidates *candidates);

#endif
