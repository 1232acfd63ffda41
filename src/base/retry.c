/*
 * retry.c
 *		When a failed job is tried again. Pure arithmetic; a worker's own retry_backoff function is called in
 *		outcome.c.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "retry.h"

/*
 * Sidekiq's formula (lib/sidekiq/job_retry.rb): count^4 + 15 + rand(10 * (count + 1)) seconds, rand() giving
 * an integer from 0. Twenty-five retries take some 20 days.
 */
int64
retry_default_delay(int failures)
{
	int64		count = Min(failures, 1000);	/* far beyond MAX_RETRY_DELAY; its 4th power fits */
	int64		seconds = count * count * count * count + 15;

	seconds += pg_prng_uint64_range(&pg_global_prng_state, 0, 10 * (count + 1) - 1);
	return Min(seconds, MAX_RETRY_DELAY / USECS_PER_SEC) * USECS_PER_SEC;
}

TimestampTz
retry_at(TimestampTz now, int64 delay)
{
	return now + Min(Max(delay, 0), MAX_RETRY_DELAY);
}
