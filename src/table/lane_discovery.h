/*
 * lane_discovery.h
 *		Lanes with jobs to claim that have no hint in shared memory (lane_hint.h) are found in the index of
 *		those jobs.
 */
#ifndef QUEUE_JOBS_LANE_DISCOVERY_H
#define QUEUE_JOBS_LANE_DISCOVERY_H

/*
 * Makes hints for lanes that have entries in the index of jobs to claim, from that after *position on, and no
 * more than "most" of those; "unhinted" is called with each for which there is no room. *position is 0 at the
 * begin and at the end. True at the end: then all lanes that had jobs at the begin have hints, but those that
 * were told of.
 */
extern bool lane_hints_discover(int32 *position, int most, void (*unhinted)(int32 lane, void *argument),
								void *argument);

#endif
