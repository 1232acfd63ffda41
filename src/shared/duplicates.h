/*
 * duplicates.h
 *		How many duplicates of each lane's jobs were dropped, and merged, since the server started: for the
 *		views worker and metric.
 *
 * A duplicate writes nothing, so it is counted in the lane's hint, when the transaction that was told
 * "duplicate" commits.
 */
#ifndef QUEUE_JOBS_DUPLICATES_H
#define QUEUE_JOBS_DUPLICATES_H

#include "lane_hint.h"

/*
 * Notes that this transaction was told "duplicate" (LANE_DROPPED) for a job of that lane, or has merged a
 * job of that lane into another (LANE_MERGED).
 */
extern void duplicates_note(int32 lane, LaneCounter counter);

/* At the end of the transaction. */
extern void duplicates_end_transaction(bool committed);

#endif
