/*
 * clock_ahead.c
 *		For LD_PRELOAD: a system clock that is ahead of the machine's by what a file says, whenever that changes.
 *
 * CLOCK_AHEAD names a file of eight bytes, a number of seconds as the machine has it. It is mapped into memory, so
 * all processes see a change at the same moment. Clocks that cannot be set are left alone. The system tells no process of such
 * a change, so that no process can ask for that.
 *
 * (libfaketime, made for such tests, has processes that the postmaster of PostgreSQL 15 starts in a signal handler see
 * the true time.)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead = NULL;

__attribute__((constructor)) static void
map(void)
{
	const char *name = getenv("CLOCK_AHEAD");
	int			file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	void	   *address = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(*ahead), PROT_READ, MAP_SHARED, file, 0);

	if (file >= 0)
		close(file);
	if (address != MAP_FAILED)
		ahead = address;
}

int
clock_gettime(clockid_t clock, struct timespec *result)
{
	int			status = (int) syscall(SYS_clock_gettime, clock, result);

	if (status == 0 && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		result->tv_sec += *ahead;
	return status;
}

int
gettimeofday(struct timeval *result, void *zone)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	result->tv_sec = now.tv_sec;
	result->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *result)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (result)
		*result = now.tv_sec;
	return now.tv_sec;
}

int
timerfd_create(int clock, int flags)
{
	(void) clock;
	(void) flags;
	errno = ENOSYS;
	return -1;
}
