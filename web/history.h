/*
 * history.h
 *		What ran and failed in each queue in the last ten minutes, from the counters that the database has.
 */
#ifndef QUEUE_JOBS_WEB_HISTORY_H
#define QUEUE_JOBS_WEB_HISTORY_H

#include "database.h"

#define HISTORY_SAMPLES 120
#define HISTORY_SECONDS 5

typedef struct History
{
	int			count;			/* of samples, the latest last */
	double		runs[HISTORY_SAMPLES];	/* a second */
	double		failures[HISTORY_SAMPLES];
} History;

/* Asks for the counters, and takes a sample when one is due. */
extern Answer *history_ask(Viewer *viewer);
/* False: there is nothing of that queue yet. */
extern bool history_of(const char *queue, History *history);

#endif
