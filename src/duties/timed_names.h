/*
 * timed_names.h
 *		What the scheduler has to do at times that stand in tables: names with times.
 */
#ifndef QUEUE_JOBS_TIMED_NAMES_H
#define QUEUE_JOBS_TIMED_NAMES_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

typedef struct Due
{
	char	   *name;
	TimestampTz at;				/* DT_NOBEGIN: null */
} Due;

/*
 * The rows of a query of the engine's, a name and a time each, as Due *, in the current memory context. "now"
 * is its parameter $1. In a transaction of its own; empty if the extension is absent or of another version.
 */
extern List *timed_names(const char *query, TimestampTz now);

#endif
