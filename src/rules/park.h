/*
 * park.h
 *		Jobs whose concurrency key is at its limit, put aside so that claims need not walk over them. park.c
 *		tells how.
 */
#ifndef QUEUE_JOBS_PARK_H
#define QUEUE_JOBS_PARK_H

#include "lane.h"
#include "live_table.h"

/* A job of the key has ended: the next one of it goes back to its lane, in this transaction. */
extern void park_release(LiveTable *table, const Worker *worker, uint64 key);

/* Whether any job of the key is parked: one of the lane that goes before that job, or (NULL) of all lanes. */
extern bool park_any(LiveTable *table, const Worker *worker, uint64 key, const Job *before);

/* Where jobs of the key are parked: a number below zero. */
extern int32 park_place(uint64 key);

/*
 * Sends the first parked jobs of a key back, that can start then. *more says whether others wait for nothing
 * but their key, if that is of interest: then all that wait for something else, too, may be read.
 */
extern void park_send_back(LiveTable *table, const Worker *worker, uint64 key, int most, bool *more);

#endif
