/*
 * interruption.c
 *		Which process interrupts one of ours; see interruption.h.
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "compat.h"
#include "interruption.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "tcop/tcopprot.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

static volatile sig_atomic_t cancelled = false;
static volatile sig_atomic_t terminated = false;

void
signal_set_handler(int signo, SignalHandler handler)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};

	sigemptyset(&action.sa_mask);
	if (sigaction(signo, &action, NULL) < 0)
		elog(ERROR, "could not set the handler of signal %d: %m", signo);
}

/*
 * Every process of the server leads a process group of its own, to which belongs what it starts. A sender in
 * another PID namespace is shown as 0, and is none of ours.
 */
bool
sent_by_others(const siginfo_t *info)
{
	return info->si_pid <= 0 || getpgid(info->si_pid) != getpgrp();
}

bool
process_lives(pid_t pid)
{
	return kill(pid, 0) == 0 || errno == EPERM;
}

/* A program that we are about to start, but which is still us, must not act for us. */
static bool
is_child(int signo)
{
	if (MyProcPid == (int) getpid())
		return false;
	pqsignal(signo, PG_SIG_DFL);
	raise(signo);
	return true;
}

/* Handles SIGTERM and SIGINT: notes whether another process sent the signal, and does as the server does. */
static void
handle(int signo, siginfo_t *info, void *context)
{
	int			saved_errno = errno;

	if (is_child(signo))
		return;
	if (signo == SIGTERM)
	{
		terminated = terminated || sent_by_others(info);
		QjSignal(die, signo, info);
	}
	else
	{
		cancelled = cancelled || sent_by_others(info);
		QjSignal(StatementCancelHandler, signo, info);
	}
	errno = saved_errno;
}

void
interruption_init(void)
{
	signal_set_handler(SIGTERM, handle);
	signal_set_handler(SIGINT, handle);
}

void
interruption_begin_run(void)
{
	cancelled = false;
	if (QueryCancelPending)
		cancelled = true;		/* it came after the claim; look in this order: it may come right now */
}

bool
cancelled_by_others(void)
{
	return cancelled;
}

bool
terminated_by_others(void)
{
	return terminated;
}

/* ---- a worker's timeout ---- */

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
