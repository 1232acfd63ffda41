/*
 * rate.h
 *		Starts in a time: windows in shared memory that know when the latest jobs of a worker, or of one value
 *		of its concurrency_key, were started. Never more than the limit start in any interval of the length of
 *		the period, through restarts and crashes of the server.
 */
#ifndef QUEUE_JOBS_RATE_H
#define QUEUE_JOBS_RATE_H

#include "utils/timestamp.h"

/* A start that was reserved. */
typedef struct RateHold
{
	int64		scope;			/* 0: none */
	TimestampTz at;
} RateHold;

/*
 * Reserves a start at *at, which is set to the present. False if it would be one too many: *at is then when
 * the next one is possible. "scope" tells what is counted together in this database.
 */
extern bool rate_reserve(int64 scope, int limit, int64 period, TimestampTz *at);

/* How many starts are possible now, at most; *next is when that may be more, if they are used. */
extern int	rate_possible(int64 scope, int limit, int64 period, TimestampTz *next);

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
