/*
 * candidate_heap.h
 *		The candidates of a process, and the heaps in which those with work stand: in one for each queue and
 *		urgency, and these in one for each urgency.
 *
 * With a walk over all queues in place of the heaps of queues, a job in one of 1,000 queues takes 51 % more
 * instructions; the upkeep of the heaps takes 1.3 % (callgrind, 5,000 jobs that do nothing).
 */
#ifndef QUEUE_JOBS_CANDIDATE_HEAP_H
#define QUEUE_JOBS_CANDIDATE_HEAP_H

#include "fairness.h"
#include "lane.h"
#include "lane_hint.h"
#include "lane_scan.h"
#include "lib/pairingheap.h"
#include "limit.h"
#include "live_table.h"
#include "utils/hsearch.h"

struct Task;

/* A walk over the jobs of a lane that was opened. */
typedef struct LaneWalk
{
	LaneScan	scan;
	Job			job;			/* the one to be tried, as long as the candidate has more */
	Refusals	refusals;
	LanePosition tried;			/* the last job that was tried, and either taken or passed by */
	int			taken;			/* so many jobs */
	bool		any_passed_by;
	bool		over;			/* there is no further job */
	int			seen;			/* so many jobs */
} LaneWalk;

typedef struct Candidate
{
	int32		id;				/* of the lane: hash key */
	const Lane *lane;
	Worker	   *worker;			/* NULL: the process takes no jobs of this lane */
	struct Task *task;			/* of an executor, or NULL */

	LaneLook	look;
	struct CandidateQueue *queue;
	struct CandidateWeight *weight;
	pairingheap_node node;		/* in queue->lanes, if "more" */
	bool		more;			/* there is a job to be tried, or may be */
	LanePosition key;			/* of that job; or (no walk) no job stands before it */
	int64		near;			/* for the next scan; below zero: nothing is known */
	LaneWalk   *walk;			/* or NULL */
	bool		noted;			/* our transaction has noted jobs that the hint knows nothing of */
	bool		unhinted;		/* it is in Candidates.unhinted */
	/* without a hint: when it may have jobs again though nothing happens, or DT_NOEND */
	TimestampTz retry_at;
} Candidate;

/*
 * Whether the process takes jobs of the lane, and then of which worker, and task, if it has such. What it
 * gives is to live as long as the candidates.
 */
typedef bool (*CandidateAdmit) (const Lane *lane, Worker **worker, struct Task **task);

/* Lanes of one queue and urgency, which take its turns together. */
typedef struct CandidateQueue
{
	QueueTurns *turns;
	Urgency		urgency;
	pairingheap lanes;			/* Candidate, by key */
	pairingheap_node node;		/* in Candidates.queues, if there are any */
	LanePosition key;			/* of the first of them; a copy, to be near */
	struct Candidates *candidates;
} CandidateQueue;

/* Workers of one urgency and weight. */
typedef struct CandidateWeight
{
	Urgency		urgency;
	int			weight;
	int			with_more;		/* so many of their lanes have */
} CandidateWeight;

typedef struct Candidates
{
	MemoryContext context;		/* in which all of it lives */
	CandidateAdmit admit;
	bool		in_turn;		/* queues take turns even if their workers weigh the same */
	uint32		set;			/* by which fairness.h knows these lanes */

	HTAB	   *lanes;			/* of Candidate */
	HTAB	   *by_turns_of;	/* of CandidateQueue * by their turns */
	List	   *every_queue;	/* of CandidateQueue */
	List	   *weights;		/* of CandidateWeight */
	List	   *unhinted;		/* of Candidate: those that had no hint when they were looked at last */
	/* what is known of the hint's index, if it still is that lane's; NULL: there are no hints */
	Candidate  **by_hint;
	uint64		seen;			/* changes of hints */
	TimestampTz next_revisit;	/* some hint may become ready then, without a change */
	TimestampTz retry_unhinted; /* the same of lanes without a hint */
	uint64		lost;			/* see lane_hints_lost(): nothing is missed of what was lost by then */
	uint64		losing;			/* the same when the round of looks into the index began that is under way */
	int32		position;		/* of that */
	bool		missing;		/* it has met lanes for which there is no room for a hint */
	int			taken_since;	/* jobs, since it was last gone on with */
	bool		doubted;		/* what is known of the lanes may be wrong */
	pairingheap queues[URGENCIES];	/* CandidateQueue: by turns, if that counts, and their first lane's key */
	bool		by_turns[URGENCIES];

	/* during one claim */
	LiveTable  *table;
	TimestampTz now;
	Snapshot	snapshot;
	List	   *altered;		/* candidates that have a walk, or jobs that their hint knows nothing of */
	bool		has_urgency;	/* it is known whose turn it is */
	Urgency		urgency;
} Candidates;

/* No candidates yet, in the current memory context. */
extern void candidates_create(Candidates *candidates, CandidateAdmit admit, bool in_turn, uint32 set);

/* So many lanes are known that have no jobs any more that it is better to begin again. */
extern bool candidates_outgrown(const Candidates *candidates);

/* Whether the process takes jobs of the lane. */
extern bool candidates_serve(Candidates *candidates, int32 lane);

/* NULL if the lane is not known yet. */
extern Candidate *known_candidate(Candidates *candidates, int32 lane);

/* NULL if there is no such lane: or not yet, so that it is asked for again when something happens there. */
extern Candidate *candidate_of(Candidates *candidates, int32 id);

/*
 * The same of a lane without a hint. If the process takes no jobs of it, it stays unknown: there may be any
 * number of such lanes, and for their sake candidates_outgrown() would have all others looked for again.
 */
extern Candidate *candidate_of_unhinted(Candidates *candidates, int32 id);

/* All that changes where a lane stands. */
extern void candidate_place(Candidate *candidate, bool more, LanePosition key);

/* The lane that goes first of a queue that has any with work. */
extern Candidate *queue_first_lane(const CandidateQueue *queue);

/*
 * Takes a queue out of its heap, and puts it in again where it belongs by now; one without work is in none.
 */
extern void queue_out(CandidateQueue *queue);
extern void queue_in(CandidateQueue *queue);

#endif
