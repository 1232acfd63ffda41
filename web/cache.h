/*
 * cache.h
 *		Answers of the last second, so that any number of viewers cost the server one set of
 *		queries a second.
 */
#ifndef QUEUE_JOBS_WEB_CACHE_H
#define QUEUE_JOBS_WEB_CACHE_H

#include "database.h"

typedef struct Cached Cached;

/*
 * Looks for the answer to a query of a role. If another thread is asking it, waits for that.
 * Without an answer the caller runs the query and hands over what comes of it to cache_fill(), with
 * the place that is returned (NULL: there is none).
 */
extern Cached *cache_find(const char *role, const char *sql, int count, const char *const *values, Answer **answer);
extern void cache_fill(Cached *place, Answer *answer);
/*
 * Something has changed: no answer to a query that began before this call is given to one that
 * begins after it.
 */
extern void cache_forget(void);

#endif
