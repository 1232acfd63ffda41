/*
 * fairness.h
 *		Which lane's job goes next: by urgency first, then by the queues' shares, then by priority and age.
 *
 * Urgency high goes before low, low before throttled. So that nothing starves, an urgency that has been
 * passed over for PATIENCE gets every eighth turn from then on, as long as it has work. Queues of one urgency
 * take turns in the proportion of their workers' weights (stride scheduling). It all is local to the process
 * that takes jobs; one that has just begun, and may not live for long, tells by the age of an urgency's first
 * job that others have passed it over.
 *
 * A process that takes jobs from several sets of lanes in turn knows for each set by itself what was passed
 * over: that one of them has no work says nothing of the others. A set is known by a number that the caller
 * gives it.
 */
#ifndef QUEUE_JOBS_FAIRNESS_H
#define QUEUE_JOBS_FAIRNESS_H

#include "registry.h"
#include "utils/timestamp.h"

#define URGENCIES (URGENCY_THROTTLED + 1)

/* The turns that a queue has had, of one urgency. Never freed. */
typedef struct QueueTurns QueueTurns;

extern QueueTurns *fairness_turns(const char *queue, Urgency urgency);

/*
 * Whether this process has never passed over the urgency, and is to be told since when its first job has been
 * due.
 */
extern bool fairness_is_new(uint32 set, Urgency urgency);
extern void fairness_introduce(uint32 set, Urgency urgency, TimestampTz due_since, TimestampTz now);

/* The urgency whose turn it is, of those that have work: at least one has. */
extern Urgency fairness_urgency(uint32 set, const bool has_work[URGENCIES], TimestampTz now);

/* No urgency has work: none is passed over any more. */
extern void fairness_idle(uint32 set);

/*
 * Below zero if queue a goes before queue b, 0 if they are equal. Both are of the same urgency, and have
 * work.
 */
extern int	fairness_compare(QueueTurns *a, QueueTurns *b);

/* The queue has had a turn: one job of a worker of that weight. */
extern void fairness_charge(QueueTurns *turns, int weight);

#endif
