/*
 * heads.h
 *		The lanes that a process takes jobs from, and which of them goes first (order.h).
 *
 * Of a lane that nobody looks into, only its hint is known: no job of it stands before the hint's cursor. That is enough
 * until it seems to be its turn. Then the lane is opened, and if its first job stands behind that of another one, it has to
 * wait after all. So a claim opens about as many lanes as it takes jobs from, and looks at the hints that have changed since
 * the last one, however many lanes there are.
 */
#ifndef QUEUE_JOBS_HEADS_H
#define QUEUE_JOBS_HEADS_H

#include "lane.h"
#include "lane_hint.h"
#include "lib/pairingheap.h"
#include "limit.h"
#include "order.h"
#include "store.h"

struct Task;

/* A walk over the jobs of a lane that was opened. */
typedef struct LaneWalk
{
	LaneScan	scan;
	Job			job;			/* the one to be tried, as long as the head has more */
	Refusals	refusals;
	LaneKey		tried;			/* the last job that was tried, and either taken or passed by */
	int			taken;			/* so many jobs */
	bool		any_passed_by;
	bool		over;			/* there is no further job */
	int			seen;			/* so many jobs */
} LaneWalk;

typedef struct LaneHead
{
	const Lane *lane;
	Worker	   *worker;
	struct Task *task;			/* of an executor, or NULL */

	LaneHint   *hint;
	LaneLook	look;
	struct QueueHeads *queue;
	struct HeadsWeight *weight;
	pairingheap_node node;		/* in queue->lanes, if "more" */
	bool		more;			/* there is a job to be tried, or may be */
	LaneKey		key;			/* of that job; or (no walk) no job stands before it */
	int64		near;			/* for the next scan */
	LaneWalk   *walk;			/* or NULL */
	bool		noted;			/* our transaction has noted jobs that the hint knows nothing of */
} LaneHead;

/* Lanes of one queue and urgency, which take its turns together. */
typedef struct QueueHeads
{
	QueueTurns *turns;
	Urgency		urgency;
	pairingheap lanes;			/* LaneHead, by key */
	pairingheap_node node;		/* in Heads.queues, if there are any */
	LaneKey		key;			/* of the first of them; a copy, to be near */
	struct Heads *heads;
} QueueHeads;

/* Workers of one urgency and weight. */
typedef struct HeadsWeight
{
	Urgency		urgency;
	int			weight;
	int			with_more;		/* so many of their lanes have */
} HeadsWeight;

typedef struct Heads
{
	LaneHead   *all;
	int			count;
	bool		in_turn;		/* queues take turns even if their workers weigh the same */
	uint32		set;			/* by which order.h knows these lanes */

	QueueHeads *every_queue;
	int			queue_count;
	HeadsWeight *weights;
	int			weight_count;
	LaneHead  **by_hint;		/* by the hint's index; NULL: some have no hint */
	uint64		seen;			/* changes of hints */
	TimestampTz next_revisit;	/* some hint may become ready then, without a change */
	bool		doubted;		/* what is known of the lanes may be wrong */
	pairingheap queues[URGENCIES];	/* QueueHeads: by turns, if that counts, and their first lane's key */
	bool		by_turns[URGENCIES];

	/* during one claim */
	LiveTable  *table;
	TimestampTz now;
	Snapshot	snapshot;
	List	   *altered;		/* heads that have a walk, or jobs that their hint knows nothing of */
	TimestampTz revisit_unhinted;	/* the same as next_revisit, of lanes without a hint that were opened */
	bool		has_urgency;	/* it is known whose turn it is */
	Urgency		urgency;
} Heads;

/* Heads for up to so many lanes, in the current memory context; heads_add() all of them, in order of their queues, and heads_complete(). */
extern void heads_create(Heads *heads, int lanes, bool in_turn, uint32 set);
extern void heads_add(Heads *heads, const Lane *lane, Worker *worker, struct Task *task);
extern void heads_complete(Heads *heads);

/* A claim begins; it lives in the current memory context, and ends with heads_end(). */
extern void heads_begin(Heads *heads, LiveTable *table, TimestampTz now);

/* When a lane may have a job to claim though nothing happens, or DT_NOEND. */
extern TimestampTz heads_next_revisit(Heads *heads);

/* The head whose walk has the next job, or NULL if there is none; "look" if it is not to be taken: then nobody's turn is used up. */
extern LaneHead *heads_first(Heads *heads, bool look);

/* The head's job was tried, and taken or not. */
extern void heads_tried(Heads *heads, LaneHead *head, bool taken);

/* To the next job of the head's lane, if there is one and the verdict on the last one does not hold for all of the worker's. */
extern void heads_advance(LaneHead *head, LimitVerdict verdict);

/* Another head that has work, as far as is known, or NULL. */
extern LaneHead *heads_other(Heads *heads, const LaneHead *taken);

/*
 * The claim is over: what it has found out is settled in the lanes' hints. Without "tried" a lane of which no job was taken
 * is looked at again from where this claim began, instead of from after the jobs that it has tried.
 */
extern void heads_end(Heads *heads, bool tried);

#endif
