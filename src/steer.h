/*
 * steer.h
 *		Jobs steered by hand: cancel(), discard(), retry(), remove_jobs(), pause(), resume().
 */
#ifndef QUEUE_JOBS_STEER_H
#define QUEUE_JOBS_STEER_H

/* What cancel() or discard() found running, and is put back by the time of the commit, is ended then. */
extern void steer_init(void);

#endif
