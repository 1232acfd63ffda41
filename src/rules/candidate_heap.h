/*
 * candidate_heap.h
 *		The candidates of a process (the lanes that it may take jobs from), and the heaps that order those
 *		with work: a heap of lanes for each queue and urgency, and a heap of these queues for each urgency.
 *
 * Without the heaps of queues, a claim would walk over all queues, and a job in one of 1,000 queues would
 * take 51 % more instructions. The upkeep of the heaps takes 1.3 % (callgrind, 5,000 jobs that do nothing).
 */
#ifndef QUEUE_JOBS_CANDIDATE_HEAP_H
#define QUEUE_JOBS_CANDIDATE_HEAP_H

#include "fair_turn.h"
#include "lane.h"
#include "lane_hint.h"
#include "lib/pairingheap.h"
#include "limit.h"
#include "live_scan.h"
#include "live_table.h"
#include "registry.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

/* ---- whose job goes next ---- */

/*
 * Chooses the lane whose job goes next: by urgency first, then by the queues' shares, then by priority
 * and age.
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

#define URGENCIES (URGENCY_THROTTLED + 1)

/* The turns that a queue has had in one urgency. Never freed. */
typedef struct QueueTurns QueueTurns;

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

struct Task;

/* A claim's walk over the jobs of one lane. */
typedef struct LaneWalk
{
	LaneScan	scan;
	Job			job;			/* the job to try next, if the candidate has more */
	Refusals	refusals;
	LanePosition tried;			/* the last job that the claim took or passed by */
	int			taken;			/* number of jobs */
	bool		any_passed_by;
	bool		over;			/* there is no further job */
	bool		put_off;		/* the next job has not been read, and the scan has ended */
	int			seen;			/* number of jobs */
} LaneWalk;

typedef struct Candidate
{
	int64		id;				/* of the lane: hash key */
	const Lane *lane;
	Worker	   *worker;			/* NULL: the process takes no jobs of this lane */
	struct Task *task;			/* of an executor, or NULL */

	LaneLook	look;
	struct CandidateQueue *queue;
	struct CandidateWeight *weight;
	struct FairLanes *fair;		/* those of its worker, if the lane is of a value of fair_key; or NULL */
	pairingheap_node node;		/* in queue->lanes, if "more"; of the lanes of "fair" only their first */
	bool		more;			/* the lane has a job to try, or may have one */
	LanePosition key;			/* that job's position; without a walk, no job stands before it */
	pairingheap_node fair_node;	/* in fair->lanes, if "more" */
	int64		turn;			/* when the value has its next job, as far as this process has heard */
	LanePosition turn_key;		/* "key" as it was when the value came to that turn */
	int			fair_weight;
	int64		near;			/* LaneScan.near of the next scan; below zero: not known */
	LaneWalk   *walk;			/* or NULL */
	bool		noted;			/* this transaction has noted jobs that the hint does not show */
	bool		unhinted;		/* listed in Candidates.unhinted */
	/* without a hint: when the lane may have jobs again though no process says so, or DT_NOEND */
	TimestampTz retry_at;
} Candidate;

/*
 * Returns whether the process takes jobs of the lane. If so, sets *worker and, in an executor, *task. Both
 * must live as long as the candidates.
 */
typedef bool (*CandidateAdmit) (const Lane *lane, Worker **worker, struct Task **task);

/* The lanes of one queue and urgency, which share that queue's turns. */
typedef struct CandidateQueue
{
	QueueTurns *turns;
	Urgency		urgency;
	pairingheap lanes;			/* Candidate, by key */
	List	   *fair;			/* of FairLanes */
	pairingheap_node node;		/* in Candidates.queues, if there are any */
	LanePosition key;			/* the first lane's, copied here for the processor's cache */
	struct Candidates *candidates;
} CandidateQueue;

/*
 * The lanes of the values of a worker's fair_key, in one queue. The first in turn stands in the queue's heap
 * for all of them: so the worker's share of the queue does not depend on how many they are.
 *
 * Other processes have the values' turns go on. They only ever rise: so only the first lane's turn is read
 * again before a job is tried there (candidate_refresh_turn()).
 *
 * Lanes that have the same turn go by the position where their jobs began when they came to it. If they went
 * by the first job itself, a claim would have to open each of them: after a job was taken, the next one of
 * its lane stands behind those of all other values.
 */
typedef struct FairLanes
{
	uint64		worker;			/* hash of its name */
	pairingheap lanes;			/* Candidate, by turn, then by turn_key */
	Candidate  *first;			/* the one that stands in the queue's heap, or NULL */
} FairLanes;

/* Workers of one urgency and weight. */
typedef struct CandidateWeight
{
	Urgency		urgency;
	int			weight;
	int			with_more;		/* number of their lanes that have more jobs */
} CandidateWeight;

typedef struct Candidates
{
	MemoryContext context;		/* holds all of this */
	CandidateAdmit admit;
	Candidate	admitted;		/* of the lane that was asked for last: its lane, worker and task */
	bool		in_turn;		/* queues take turns even if their workers weigh the same */
	uint32		set;			/* the number by which the turns know these lanes */

	HTAB	   *lanes;			/* of Candidate */
	HTAB	   *by_turns_of;	/* of CandidateQueue * by their turns */
	List	   *every_queue;	/* of CandidateQueue */
	List	   *weights;		/* of CandidateWeight */
	List	   *unhinted;		/* of Candidate: lanes that had no hint at the last look */
	/* by index of the hint: its lane's candidate, unless another lane has got the hint; NULL: no hints */
	Candidate  **by_hint;
	uint64		seen;			/* number of changes of hints that this process has read */
	TimestampTz next_revisit;	/* when a hint may become ready without a change */
	TimestampTz retry_unhinted; /* when a lane without a hint may have jobs again */
	uint64		lost;			/* the lane_hints_lost() up to which this process misses no lane */
	uint64		losing;			/* lane_hints_lost() when the current round of looks into the index began */
	int64		position;		/* how far that round has come */
	bool		missing;		/* that round has met lanes that have no room for a hint */
	int			taken_since;	/* jobs taken since that round last went on */
	bool		doubted;		/* an ERROR may have left all this out of date */
	pairingheap queues[URGENCIES];	/* CandidateQueue: by turns if by_turns, then by first lane's key */
	bool		by_turns[URGENCIES];

	/* during one claim */
	LiveTable  *table;
	TimestampTz now;
	Snapshot	snapshot;
	List	   *altered;		/* with a walk, or with jobs that the hint does not show */
	int			opened;			/* lanes */
	bool		has_urgency;	/* "urgency" is set */
	Urgency		urgency;
} Candidates;

/* Makes an empty set of candidates in the current memory context. */
extern void candidates_create(Candidates *candidates, CandidateAdmit admit, bool in_turn, uint32 set);

/*
 * Whether the process knows so many lanes without jobs that it had better make its candidates again. If so
 * many lanes are others', it forgets them instead.
 */
extern bool candidates_outgrown(Candidates *candidates);

/* Whether the process takes jobs of the lane. */
extern bool candidates_serve(Candidates *candidates, int64 lane);

/* Returns the lane's candidate; NULL if the process does not know the lane yet. */
extern Candidate *known_candidate(Candidates *candidates, int64 lane);

/*
 * Returns the lane's candidate, and makes it if need be. NULL if the lane does not exist (yet): the caller
 * asks again when something happens in it.
 */
extern Candidate *candidate_of(Candidates *candidates, int64 id);

/*
 * Does so for a lane without a hint, but keeps no candidate if the process takes no jobs of the lane. There
 * may be any number of such lanes, and candidates_outgrown() would come true because of them.
 */
extern Candidate *candidate_of_unhinted(Candidates *candidates, int64 id);

/* Moves a lane within the heaps. No other function does. */
extern void candidate_place(Candidate *candidate, bool more, LanePosition key);

/* Take a queue out of its heap, and put it back where it now belongs. A queue without work is in no heap. */
extern void queue_out(CandidateQueue *queue);
extern void queue_in(CandidateQueue *queue);

/*
 * Reads again when the first lane of its worker's values has its turn. False if another lane is the first
 * now.
 */
extern bool candidate_refresh_turn(Candidate *candidate);

/* Has the lane go by its first job, now that this is known, among lanes that have the same turn. */
extern void candidate_order_newcomer(Candidate *candidate);

/* Counts a job that was taken from the lane: a turn of its queue, and of its value. */
extern void candidate_charge(Candidate *candidate);

/* Another lane of the same worker's values that has work, as far as is known, or NULL. */
extern Candidate *candidate_other_value(const Candidate *candidate);

/* Returns the lane that goes first. The queue must have a lane with work. */
extern Candidate *queue_first_lane(const CandidateQueue *queue);

#endif
