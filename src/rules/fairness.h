/*
 * fairness.h
 *		Chooses the lane whose job goes next: by urgency first, then by the queues' shares, then by priority
 *		and age.
 *
 * High urgency goes before low, and low before throttled. So that no urgency starves, one that a process has
 * passed over for PATIENCE gets every eighth turn from then on, as long as it has work. Queues of one urgency
 * take turns in proportion to their workers' weights (stride scheduling). Each process that takes jobs keeps
 * these counts for itself. A process that has just begun, and may not live for long, takes the age of an
 * urgency's first job for the time for which others have passed the urgency over.
 *
 * A process that takes jobs from several sets of lanes in turn keeps separate counts for each set: that one
 * set has no work says nothing about the others. The caller gives each set a number.
 */
#ifndef QUEUE_JOBS_FAIRNESS_H
#define QUEUE_JOBS_FAIRNESS_H

#include "registry.h"
#include "utils/timestamp.h"

#define URGENCIES (URGENCY_THROTTLED + 1)

/* The turns that a queue has had in one urgency. Never freed. */
typedef struct QueueTurns QueueTurns;

extern QueueTurns *fairness_turns(const char *queue, Urgency urgency);

/*
 * fairness_is_new() tells whether this process has never passed over the urgency. If so, the caller tells
 * fairness_introduce() since when the urgency's first job has been due.
 */
extern bool fairness_is_new(uint32 set, Urgency urgency);
extern void fairness_introduce(uint32 set, Urgency urgency, TimestampTz due_since, TimestampTz now);

/* Returns the urgency whose turn it is, among those that have work. At least one must have work. */
extern Urgency fairness_urgency(uint32 set, const bool has_work[URGENCIES], TimestampTz now);

/* Called when no urgency has work: the process passes none over any more. */
extern void fairness_idle(uint32 set);

/*
 * Below zero if queue a goes before queue b, 0 if they are equal. Both are of the same urgency, and have
 * work.
 */
extern int	fairness_compare(QueueTurns *a, QueueTurns *b);

/* Counts a turn of the queue: one job of a worker of that weight. */
extern void fairness_charge(QueueTurns *turns, int weight);

#endif
