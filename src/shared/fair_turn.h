/*
 * fair_turn.h
 *		Turns of the values of a worker's fair_key, in shared memory: one count for all processes that take
 *		its jobs.
 *
 * A worker's turns are numbered. In each, a value gets as many jobs as its weight. The turn of a worker is
 * the one of its latest job: a value that comes, or comes back, joins it, and has saved up nothing. So a
 * value needs an entry only as long as it has had jobs of the present turn, or all of them. Values that have
 * no jobs cost nothing: their entries give way. After a crash, and for a value whose entry had to give way,
 * the count begins with the present turn.
 *
 * Without shared memory each session counts by itself.
 */
#ifndef QUEUE_JOBS_FAIR_TURN_H
#define QUEUE_JOBS_FAIR_TURN_H

extern void fair_turns_init(void);

/* When a value has its next job: the lowest goes first. "worker" is the hash of the worker's name. */
extern int64 fair_turn(uint64 worker, int32 value, int weight);

/* Counts a job of the value. Returns when it has the next one. */
extern int64 fair_turn_take(uint64 worker, int32 value, int weight);

/*
 * No value of the worker has jobs left, and the last one that had some would have had its next one then: a
 * turn that all have had is over.
 */
extern void fair_turn_over(uint64 worker, int64 next);

#endif
