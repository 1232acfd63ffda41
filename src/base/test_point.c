/*
 * test_point.c
 *		Places at which a test can have a process wait, fail or die; see test_point.h.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "test_point.h"

#ifdef QUEUE_JOBS_TEST_POINTS

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/latch.h"
#include "utils/wait_event.h"

/* Waits as long as the test keeps the file there. */
static void
wait_until_gone(const char *path)
{
	char		waiting[MAXPGPATH];

	snprintf(waiting, sizeof(waiting), "%s.waiting", path);
	if (rename(path, waiting) != 0)
		return;
	while (access(waiting, F_OK) == 0)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);	/* as a wait for a lock does: no caller may rely on it */
	}
}

/* Counts that the process was here, for the test. */
static void
count_one(const char *path)
{
	char		counted[MAXPGPATH];
	FILE	   *file;

	snprintf(counted, sizeof(counted), "%s.counted", path);
	file = fopen(counted, "a");
	if (file == NULL)
		return;
	fputc('.', file);
	fclose(file);
}

/* The process that takes the file away does what it says: one process, once. */
void
test_point(const char *name)
{
	char		path[MAXPGPATH];
	char		action[16] = "";
	FILE	   *file;

	snprintf(path, sizeof(path), "queue_jobs.points/%s", name);
	file = fopen(path, "r");
	if (file == NULL)
		return;
	if (fscanf(file, "%15s", action) != 1)
		action[0] = '\0';
	fclose(file);
	if (strcmp(action, "count") == 0)
		count_one(path);
	else if (strcmp(action, "wait") == 0)
		wait_until_gone(path);
	else if (strcmp(action, "pause") == 0)
	{
		wait_until_gone(path);
		CHECK_FOR_INTERRUPTS();
	}
	else if (unlink(path) != 0)
		return;
	else if (strcmp(action, "kill") == 0)
		kill(getpid(), SIGKILL);
	else
		ereport(strcmp(action, "fatal") == 0 ? FATAL : ERROR,
				(errmsg("test point \"%s\" was reached", name)));
}

#endif
