/*
 * lane_ids.h
 *		Which live jobs are in some lanes, where these have few among many.
 */
#ifndef QUEUE_JOBS_LANE_IDS_H
#define QUEUE_JOBS_LANE_IDS_H

#include "live_scan.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

typedef struct LaneIds
{
	int64	   *ids;			/* from the highest to the lowest */
	int			count;
	int			size;
} LaneIds;

/*
 * The ids, up to "highest", of the jobs that the snapshot has in these lanes, in the current
 * memory context. False if more than "most" rows have to be read.
 */
extern bool lane_ids_find(LaneIds *found, Relation live_jobs, Snapshot snapshot, int64 highest, int64 most,
						  LaneChoice *lanes);

#endif
