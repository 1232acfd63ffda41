/*
 * run_timeout.c
 *		A worker's timeout; see run_timeout.h.
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "run_timeout.h"
#include "utils/timeout.h"

#define ANSWER_TO_TIMEOUT 1000	/* milliseconds between the signals to a run that does not stop */
/* so many times a handler may catch its cancellation; then its process ends */
#define TIMEOUTS_BEFORE_END 5

static TimeoutId job_timeout;	/* fires when the run's time is over */
static TimeoutId job_timeout_again; /* ticks while it lasts, and fires again if the run goes on */
static volatile sig_atomic_t timeouts_fired = 0;

/* In a signal handler. A handler that catches every cancellation is stopped with its process. */
static void
job_timeout_handler(void)
{
	timeouts_fired = timeouts_fired + 1;
	kill(MyProcPid, timeouts_fired > TIMEOUTS_BEFORE_END ? SIGTERM : SIGINT);
}

static void
job_timeout_again_handler(void)
{
	if (timeouts_fired > 0)
		job_timeout_handler();
}

void
run_timeout_arm(int64 timeout)
{
	EnableTimeoutParams params[] = {
		{.id = job_timeout,.type = TMPARAM_AFTER,.delay_ms = timeout / 1000},
		{.id = job_timeout_again,.type = TMPARAM_EVERY,.delay_ms = ANSWER_TO_TIMEOUT},
	};

	timeouts_fired = 0;
	if (timeout == 0)
		return;
	enable_timeouts(params, lengthof(params));
}

void
run_timeout_disarm(int64 timeout)
{
	DisableTimeoutParams params[] = {{.id = job_timeout}, {.id = job_timeout_again}};

	if (timeout != 0)
		disable_timeouts(params, lengthof(params));
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
	job_timeout_again = RegisterTimeout(USER_TIMEOUT, job_timeout_again_handler);
}
