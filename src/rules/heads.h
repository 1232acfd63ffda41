/*
 * heads.h
 *		The lanes that a process takes jobs from, and which of them goes first (order.h).
 *
 * Of a lane that no claim looks into, only its hint is known: no job of it stands before the hint's cursor.
 * That is enough until it seems to be its turn. Then the lane is opened, and if its first job stands behind
 * that of another one, it has to wait after all. So a claim opens about as many lanes as it takes jobs from,
 * and looks at the hints that have changed since the last one, however many lanes there are.
 *
 * A lane becomes known when its hint shows that it may have jobs. Of lanes for which there is no room for
 * hints (lane_hint.h), the index of jobs is asked: at first, and then for some of them at a time, as long as
 * anything is lost. Such a lane is gone through from its begin; when no job is left in it, it is at rest
 * until it is found again.
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
	Worker	   *worker;			/* NULL: the process takes no jobs of this lane */
	struct Task *task;			/* of an executor, or NULL */

	LaneLook	look;
	struct QueueHeads *queue;
	struct HeadsWeight *weight;
	pairingheap_node node;		/* in queue->lanes, if "more" */
	bool		more;			/* there is a job to be tried, or may be */
	LaneKey		key;			/* of that job; or (no walk) no job stands before it */
	int64		near;			/* for the next scan; below zero: nothing is known */
	LaneWalk   *walk;			/* or NULL */
	bool		noted;			/* our transaction has noted jobs that the hint knows nothing of */
	bool		unhinted;		/* it is in Heads.unhinted */
	TimestampTz retry_at;		/* without a hint: when it may have jobs again though nothing happens, or DT_NOEND */
} LaneHead;

/*
 * Whether the process takes jobs of the lane, and then of which worker, and task, if it has such. What it
 * gives is to live as long as the heads.
 */
typedef bool (*HeadsAdmit) (const Lane *lane, Worker **worker, struct Task **task);

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
	MemoryContext context;		/* in which all of it lives */
	HeadsAdmit	admit;
	bool		in_turn;		/* queues take turns even if their workers weigh the same */
	uint32		set;			/* by which order.h knows these lanes */

	struct HTAB *lanes;			/* of LaneHead * by their lanes' ids */
	struct HTAB *by_turns_of;	/* of QueueHeads * by their turns */
	List	   *every_queue;	/* of QueueHeads */
	List	   *weights;		/* of HeadsWeight */
	List	   *unhinted;		/* of LaneHead: those that had no hint when they were looked at last */
	LaneHead  **by_hint;		/* what is known of the hint's index, if it still is that lane's; NULL: there are no hints */
	uint64		seen;			/* changes of hints */
	TimestampTz next_revisit;	/* some hint may become ready then, without a change */
	TimestampTz retry_unhinted; /* the same of lanes without a hint */
	uint64		lost;			/* see lane_hints_lost(): nothing is missed of what was lost by then */
	uint64		losing;			/* the same when the round of looks into the index began that is under way */
	int32		position;		/* of that */
	bool		missing;		/* it has met lanes for which there is no room for a hint */
	int			taken_since;	/* jobs, since it was last gone on with */
	bool		doubted;		/* what is known of the lanes may be wrong */
	pairingheap queues[URGENCIES];	/* QueueHeads: by turns, if that counts, and their first lane's key */
	bool		by_turns[URGENCIES];

	/* during one claim */
	LiveTable  *table;
	TimestampTz now;
	Snapshot	snapshot;
	List	   *altered;		/* heads that have a walk, or jobs that their hint knows nothing of */
	bool		has_urgency;	/* it is known whose turn it is */
	Urgency		urgency;
} Heads;

/* No heads yet, in the current memory context. */
extern void heads_create(Heads *heads, HeadsAdmit admit, bool in_turn, uint32 set);

/* So many lanes are known that have no jobs any more that it is better to begin again. */
extern bool heads_outgrown(const Heads *heads);

/* Whether the process takes jobs of the lane. */
extern bool heads_serve(Heads *heads, int32 lane);

/* A claim begins; it lives in the current memory context, and ends with heads_end(). */
extern void heads_begin(Heads *heads, LiveTable *table, TimestampTz now);

/*
 * When a lane may have a job to claim though nothing happens, or DT_NOEND. Outside a transaction, too: then
 * also now, if there may be something for whose sake it is to be looked into tables.
 */
extern TimestampTz heads_next_revisit(Heads *heads);

/*
 * The head whose walk has the next job, or NULL if there is none; "look" if it is not to be taken: then no
 * turn is used up.
 */
extern LaneHead *heads_first(Heads *heads, bool look);

/* The head's job was tried, and taken or not. */
extern void heads_tried(Heads *heads, LaneHead *head, bool taken);

/*
 * To the next job of the head's lane, if there is one and the verdict on the last one does not hold for all
 * of the worker's.
 */
extern void heads_advance(LaneHead *head, LimitVerdict verdict);

/* Another head that has work, as far as is known, or NULL. */
extern LaneHead *heads_other(Heads *heads, const LaneHead *taken);

/*
 * The claim is over: what it has found out is settled in the lanes' hints. Without "tried" a lane of which no
 * job was taken is looked at again from where this claim began, instead of from after the jobs that it has
 * tried.
 */
extern void heads_end(Heads *heads, bool tried);

#endif
