/*
 * shell_command.c
 *		Runs a command by the shell; see shell_command.h.
 *
 * OpenPipeStream() would do, if its reader could be interrupted. The command leads a process group of its own,
 * so that it can be killed with what it has started. A process that is itself killed leaves the command alone:
 * it ends when it next prints something, for nothing reads its pipe any more.
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "miscadmin.h"
#include "portability/instr_time.h"
#include "shell_command.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

#define LOOK_FOR_END_EVERY 5	/* milliseconds, once its output is closed */
#define WAIT_FOR_KILLED 100		/* times as long */

#ifndef __linux__
extern char **environ;			/* which unistd.h does not declare everywhere */
#endif

typedef struct ShellCommand
{
	pid_t		pid;			/* 0: has ended, or was never started */
	int			output;			/* our end of the pipe; -1: closed */
	int64		until;			/* milliseconds, of monotonic_ms() */
	int			status;			/* after it has ended, as of waitpid() */
	char		buffer[BLCKSZ]; /* may have secrets in it */
} ShellCommand;

/* One that was killed, and has not ended: it waits for a disk, perhaps, which no signal interrupts. */
static pid_t not_ended = 0;

static int64
monotonic_ms(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MILLISEC(now);
}

static bool
ended(pid_t pid, int *status)
{
	return waitpid(pid, status, WNOHANG) != 0;
}

/* Also on the way to an ERROR, or out of the process. */
static void
stop(ShellCommand *command)
{
	if (command->output >= 0)
	{
		(void) close(command->output);
		ReleaseExternalFD();
		command->output = -1;
	}
	if (command->pid != 0)
	{
		(void) kill(-command->pid, SIGKILL);
		not_ended = command->pid;
		for (int i = 0; i < WAIT_FOR_KILLED && not_ended != 0; i++)
		{
			if (ended(command->pid, &command->status))
				not_ended = 0;
			else
				pg_usleep(LOOK_FOR_END_EVERY * 1000L);
		}
		command->pid = 0;
	}
	explicit_bzero(command->buffer, sizeof(command->buffer));
	SetLatch(MyLatch);			/* we may have reset it, and others wait for it, too */
}

static void
stop_at_exit(int code, Datum command)
{
	stop((ShellCommand *) DatumGetPointer(command));
}

/* Until there is something to read, if the output is open, and for so long at most. False if the command's time is over. */
static bool
wait_for(const ShellCommand *command, int64 milliseconds)
{
	int64		left = command->until - monotonic_ms();
	int			events = WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH | (command->output >= 0 ? WL_SOCKET_READABLE : 0);

	if (left <= 0)
		return false;
	(void) WaitLatchOrSocket(MyLatch, events, command->output >= 0 ? command->output : PGINVALID_SOCKET, Min(left, milliseconds), PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	return true;
}

/* The reading end is non-blocking, as the wait may have ended for another reason. */
static bool
read_all(ShellCommand *command, ShellOutput take, void *argument)
{
	ssize_t		count;

	while ((count = read(command->output, command->buffer, sizeof(command->buffer))) != 0)
	{
		if (count > 0)
			take(command->buffer, count, argument);
		else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
			break;
		if (!wait_for(command, count > 0 ? 0 : PG_INT32_MAX))
			return false;
	}
	(void) close(command->output);
	ReleaseExternalFD();
	command->output = -1;
	return true;
}

static bool
wait_for_end(ShellCommand *command)
{
	while (!ended(command->pid, &command->status))
		if (!wait_for(command, LOOK_FOR_END_EVERY))
			return false;
	command->pid = 0;
	return true;
}

/* An errno, or 0. SIGPIPE, which the server ignores, is to end what prints when nothing reads it. */
static int
spawn(const char *line, int output, pid_t *pid)
{
	char	   *arguments[] = {"sh", "-c", unconstify(char *, line), NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t	signals;
	int			failure;

	(void) posix_spawn_file_actions_init(&actions);
	(void) posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
	(void) posix_spawnattr_init(&attributes);
	(void) posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	(void) posix_spawnattr_setpgroup(&attributes, 0);
	sigemptyset(&signals);
	(void) posix_spawnattr_setsigmask(&attributes, &signals);
	sigaddset(&signals, SIGPIPE);
	(void) posix_spawnattr_setsigdefault(&attributes, &signals);
	failure = posix_spawn(pid, "/bin/sh", &actions, &attributes, arguments, environ);
	(void) posix_spawnattr_destroy(&attributes);
	(void) posix_spawn_file_actions_destroy(&actions);
	return failure;
}

/* An errno, or 0. */
static int
start(ShellCommand *command, const char *line)
{
	int			ends[2];
	int			failure;

	ReserveExternalFD();
	if (pipe(ends) < 0)
	{
		failure = errno;
		ReleaseExternalFD();
		return failure;
	}
	command->output = ends[0];
	if (fcntl(ends[0], F_SETFD, FD_CLOEXEC) < 0 || fcntl(ends[1], F_SETFD, FD_CLOEXEC) < 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0)
		failure = errno;
	else
		failure = spawn(line, ends[1], &command->pid);
	(void) close(ends[1]);
	return failure;
}

/* True if it has ended in time. */
static bool
attend(ShellCommand *command, ShellOutput take, void *argument)
{
	bool		in_time;

	PG_ENSURE_ERROR_CLEANUP(stop_at_exit, PointerGetDatum(command));
	{
		in_time = read_all(command, take, argument) && wait_for_end(command);
	}
	PG_END_ENSURE_ERROR_CLEANUP(stop_at_exit, PointerGetDatum(command));
	return in_time;
}

char *
shell_command_run(const char *line, int seconds, ShellOutput take, void *argument)
{
	ShellCommand command = {.output = -1,.status = -1};
	bool		in_time = false;
	int			failure;

	if (not_ended != 0 && !ended(not_ended, &command.status))
		return pstrdup("was killed before, and has not ended yet");
	not_ended = 0;
	command.until = monotonic_ms() + seconds * 1000L;
	failure = start(&command, line);
	if (failure == 0)
		in_time = attend(&command, take, argument);
	else
		command.pid = 0;
	stop(&command);
	if (failure != 0)
		return psprintf("could not be run: %s", strerror(failure));
	if (!in_time)
		return psprintf("did not end within %d seconds, and was killed", seconds);
	return command.status == 0 ? NULL : psprintf("failed: %s", wait_result_to_str(command.status));
}
