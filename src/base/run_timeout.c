/*
 * run_timeout.c
 *		A worker's timeout; see run_timeout.h.
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "run_timeout.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#define ANSWER_TO_TIMEOUT 1000	/* milliseconds between the signals to a run that does not stop */
/* so many times a handler may catch its cancellation; then its process ends */
#define TIMEOUTS_BEFORE_END 5

static TimeoutId job_timeout;
static volatile sig_atomic_t timeouts_fired = 0;

/* In a signal handler. A handler that catches every cancellation is stopped with its process. */
static void
job_timeout_handler(void)
{
	timeouts_fired = timeouts_fired + 1;
	kill(MyProcPid, timeouts_fired > TIMEOUTS_BEFORE_END ? SIGTERM : SIGINT);
}

void
run_timeout_arm(int64 timeout)
{
	timeouts_fired = 0;
	if (timeout != 0)
		enable_timeout_every(job_timeout, GetCurrentTimestamp() + timeout, ANSWER_TO_TIMEOUT);
}

void
run_timeout_disarm(int64 timeout)
{
	if (timeout != 0)
		disable_timeout(job_timeout, false);
}

bool
run_timeout_fired(void)
{
	return timeouts_fired > 0;
}

void
run_timeout_init(void)
{
	job_timeout = RegisterTimeout(USER_TIMEOUT, job_timeout_handler);
}
