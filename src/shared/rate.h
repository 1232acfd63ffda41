/*
 * rate.h
 *		Starts in a time: windows in shared memory that know when the latest jobs of a worker, or of one value
 *		of its concurrency_key, were started. Never more than the limit start in any interval of the length of
 *		the period, through restarts and crashes of the server. A limit that workers share has a window, too,
 *		which also knows until when the limit is closed.
 */
#ifndef QUEUE_JOBS_RATE_H
#define QUEUE_JOBS_RATE_H

#include "utils/timestamp.h"

/* A start that was reserved. */
typedef struct RateHold
{
	int64		scope;			/* 0: none */
	TimestampTz at;
	int			cost;			/* what the start counts for */
} RateHold;

/*
 * Reserves a start that counts for "cost" at *at, which is set to the present. False if that would be too
 * much: *at is then when it is possible. "scope" tells what is counted together in this database.
 */
extern bool rate_reserve(int64 scope, int limit, int64 period, int cost, TimestampTz *at);

/* How many starts are possible now, at most; *next is when that may be more, if they are used. */
extern int	rate_possible(int64 scope, int limit, int64 period, TimestampTz *next);

/*
 * Return what starts in the last period count for; and until when the scope is closed, or NO_TIME.
 * rate_used() is for servers whose recovery is over.
 */
extern int64 rate_used(int64 scope, int64 period);
extern TimestampTz rate_closed_until(int64 scope);

/* Closes the scope until that time; NO_TIME opens it. ERROR if there is no room for it. */
extern void rate_close(int64 scope, TimestampTz until);

/* Gives the start back: no job came of it. */
extern void rate_give_back(const RateHold *hold);

/* The job starts only now. */
extern void rate_started(const RateHold *hold);

/*
 * Recovery is over: finds out whether the windows know of all that was started. What they do not know of is
 * waited for.
 */
extern void rate_begin(void);

extern void rates_init(void);

#endif
