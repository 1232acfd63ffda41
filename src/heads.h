/*
 * heads.h
 *		The lanes that a process takes jobs from, and which of them goes first (order.h).
 *
 * Of a lane that nobody looks into, only its hint is known: no job of it stands before the hint's cursor. That is enough
 * until it seems to be its turn. Then the lane is opened, and if its first job stands behind that of another one, it has to
 * wait after all. So a claim opens about as many lanes as it takes jobs from, however many there are.
 */
#ifndef QUEUE_JOBS_HEADS_H
#define QUEUE_JOBS_HEADS_H

#include "lane.h"
#include "lane_hint.h"
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
	LaneKey		tried;			/* the last job that was tried */
	bool		any_tried;
	bool		any_taken;
	bool		any_passed_by;
	bool		over;			/* there is no further job */
} LaneWalk;

typedef struct LaneHead
{
	/* given by whom it belongs to */
	const Lane *lane;
	Worker	   *worker;
	LaneHint   *hint;
	QueueTurns *turns;
	Urgency		urgency;
	struct Task *task;			/* of an executor, or NULL */

	LaneLook	look;
	bool		more;			/* there is a job to be tried, or may be */
	LaneKey		key;			/* of that job; or (no walk) no job stands before it */
	LaneWalk   *walk;			/* or NULL */
} LaneHead;

typedef struct Heads
{
	LaneHead   *all;
	int			count;
	bool		by_turns;		/* queues take turns even if their workers weigh the same */

	/* during one claim */
	LiveTable  *table;
	TimestampTz now;
	Snapshot	snapshot;
	List	   *open;			/* heads that have a walk */
	LaneHead   *first[URGENCIES];	/* as far as known, or NULL */
	bool		has_urgency;	/* it is known whose turn it is */
	Urgency		urgency;
	int			with_more[URGENCIES];
	int			weight[URGENCIES];	/* of the workers of that urgency; -1: they have different ones */
} Heads;

/* A head of a lane, the rest is as at first. */
extern LaneHead head_of(const Lane *lane, Worker *worker);

/* A claim begins; it lives in the current memory context. False if no lane has a job, as far as hints tell: it is over. */
extern bool heads_begin(Heads *heads, LiveTable *table, TimestampTz now);

/* The head whose walk has the next job, or NULL if there is none; "look" if it is not to be taken: then nobody's turn is used up. */
extern LaneHead *heads_first(Heads *heads, bool look);

/* The head's job was tried, and taken or not. */
extern void heads_tried(Heads *heads, LaneHead *head, bool taken);

/* To the next job of the head's lane, if there is one; or (leave) no further. */
extern void heads_advance(Heads *heads, LaneHead *head);
extern void heads_leave(Heads *heads, LaneHead *head);

/*
 * The claim is over: what it has found out is settled in the lanes' hints. Without "tried" a lane of which no job was taken
 * is looked at again from where this claim began, instead of from after the jobs that it has tried.
 */
extern void heads_end(Heads *heads, bool tried);

#endif
