/*
 * test_point.h
 *		Places at which a test can have a process wait, fail or die.
 *
 * Only in builds for tests (-DQUEUE_JOBS_TEST_POINTS, as `make test` has it); otherwise nothing is there. A
 * server that is built with injection points has the like of its own, but Debian's is not.
 *
 * A test writes what is to happen to the next process that comes by into a file "queue_jobs.points/NAME" of
 * the data directory:
 *   kill	the process is killed
 *   fatal	ereport(FATAL)
 *   error	ereport(ERROR)
 *   wait	the file is renamed to NAME.waiting, and the process goes on when that is gone; it listens to no
 *			interrupt meanwhile
 *   pause	the same, and then it does
 *   count	each process that comes by, not the next alone, adds a byte to the file NAME.counted
 */
#ifndef QUEUE_JOBS_TEST_POINT_H
#define QUEUE_JOBS_TEST_POINT_H

#ifdef QUEUE_JOBS_TEST_POINTS
extern void test_point(const char *name);
#else
#define test_point(name) ((void) 0)
#endif

#endif
