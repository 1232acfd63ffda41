/*
 * candidate_heap.c
 *		Candidates and their heaps; see candidate_heap.h.
 *
 * Where a lane stands follows from its hint, but during a claim, for those which the claim has opened, or
 * which have jobs of its own transaction.
 */
#include "postgres.h"

#include "candidate_heap.h"
#include "common/hashfn.h"
#include "common/pg_prng.h"
#include "utils/hsearch.h"

/* ---- whose job goes next ---- */

/*
 * Stride scheduling: a queue's clock advances by STRIDE / weight with each of its jobs, and the queue whose
 * clock is behind all others goes next. The clock of the last to go is the time of its urgency: a queue that
 * comes back after it had nothing to do starts from there, and has saved up no turns.
 *
 * Why there are sets of lanes: a session whose claims alternate between two arrays makes new candidates for
 * each claim. If what is known of a set were kept there, an urgency that was passed over would get no turn
 * before its first job is 30 s old, instead of 3 s after it was passed over
 * (test/isolation/specs/passed_over.spec fails).
 */

#define STRIDE INT64CONST(5045040)	/* many numbers divide it */
#define PATIENCE (3 * USECS_PER_SEC)
#define PATIENCE_WITH_OTHERS (30 * USECS_PER_SEC)	/* a job that is so old was passed over by others */
#define MOST_SETS 1000
#define LATE_TURNS 8			/* one in so many goes to an urgency that was passed over */

typedef struct QueueKey
{
	uint64		queue;			/* hash of its name */
	int64		urgency;
} QueueKey;

struct QueueTurns
{
	QueueKey	key;
	int64		clock;
};

/* The urgencies of a set of lanes, and their turns. */
typedef struct LaneSet
{
	uint32		set;
	TimestampTz passed_over_since[URGENCIES];	/* 0: is not */
	bool		introduced[URGENCIES];
	uint32		turns_taken;
} LaneSet;

static HTAB *all_turns = NULL;
static int64 times[URGENCIES];
static HTAB *all_sets = NULL;

/*
 * Returns the notes of a set of lanes. If there are very many sets, because a client makes up an array for
 * each claim, the notes are forgotten.
 */
static LaneSet *
lane_set(uint32 set)
{
	LaneSet    *lanes;
	bool		found;

	if (all_sets != NULL && hash_get_num_entries(all_sets) >= MOST_SETS)
	{
		hash_destroy(all_sets);
		all_sets = NULL;
	}
	if (all_sets == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(uint32), .entrysize = sizeof(LaneSet)};

		all_sets = hash_create("queue_jobs sets of lanes", 16, &ctl, HASH_ELEM | HASH_BLOBS);
	}
	lanes = hash_search(all_sets, &set, HASH_ENTER, &found);
	if (!found)
		*lanes = (LaneSet) {.set = set};
	return lanes;
}

/* Returns the turns of a queue in that urgency; a new queue begins with none. */
static QueueTurns *
fairness_turns(const char *queue, Urgency urgency)
{
	QueueKey	key = {hash_bytes_extended((const unsigned char *) queue, strlen(queue), 0), urgency};
	QueueTurns *turns;
	bool		found;

	if (all_turns == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(QueueKey), .entrysize = sizeof(QueueTurns)};

		all_turns = hash_create("queue_jobs turns", 64, &ctl, HASH_ELEM | HASH_BLOBS);
	}
	turns = hash_search(all_turns, &key, HASH_ENTER, &found);
	if (!found)
		turns->clock = times[urgency];
	return turns;
}

/*
 * If several urgencies were passed over for too long, the lower ones get every eighth of the turns of those
 * above.
 */
static bool
late_turn(uint32 turns_taken, const bool late[URGENCIES], Urgency *urgency)
{
	uint32		every = LATE_TURNS;
	bool		found = false;

	for (int i = 0; i < URGENCIES; i++)
	{
		if (!late[i])
			continue;
		if (turns_taken % every == 0)
		{
			*urgency = i;
			found = true;
		}
		every *= LATE_TURNS;
	}
	return found;
}

bool
fairness_is_new(uint32 set, Urgency urgency)
{
	return !lane_set(set)->introduced[urgency];
}

/* The count of turns starts anywhere then: a process may not live for eight. */
void
fairness_introduce(uint32 set, Urgency urgency, TimestampTz due_since, TimestampTz now)
{
	LaneSet    *lanes = lane_set(set);

	lanes->introduced[urgency] = true;
	if (now - due_since <= PATIENCE_WITH_OTHERS)
		return;
	lanes->passed_over_since[urgency] = now - PATIENCE - 1;
	lanes->turns_taken = pg_prng_uint32(&pg_global_prng_state);
}

Urgency
fairness_urgency(uint32 set, const bool has_work[URGENCIES], TimestampTz now)
{
	LaneSet    *lanes = lane_set(set);
	TimestampTz *passed_over_since = lanes->passed_over_since;
	bool		late[URGENCIES] = {false};
	Urgency		urgency = URGENCIES;

	for (int i = 0; i < URGENCIES; i++)
	{
		if (!has_work[i] || urgency == URGENCIES)
			passed_over_since[i] = 0;
		else if (passed_over_since[i] == 0 || passed_over_since[i] > now)
			passed_over_since[i] = now;
		else
			late[i] = now - passed_over_since[i] > PATIENCE;
		if (has_work[i] && urgency == URGENCIES)
			urgency = i;
	}
	lanes->turns_taken++;
	(void) late_turn(lanes->turns_taken, late, &urgency);
	return urgency;
}

void
fairness_idle(uint32 set)
{
	LaneSet    *lanes = lane_set(set);

	for (int i = 0; i < URGENCIES; i++)
		lanes->passed_over_since[i] = 0;
}

/* Returns the time up to which these lanes have had their turns. */
static int64
clock_of(QueueTurns *turns)
{
	turns->clock = Max(turns->clock, times[turns->key.urgency]);
	return turns->clock;
}

/*
 * Below zero if queue a goes before queue b, 0 if they are equal. Both are of the same urgency, and have
 * work.
 */
static int
fairness_compare(QueueTurns *a, QueueTurns *b)
{
	int64		x = clock_of(a);
	int64		y = clock_of(b);

	return x < y ? -1 : x > y;
}

/* Counts a turn of the queue: one job of a worker of that weight. */
static void
fairness_charge(QueueTurns *turns, int weight)
{
	times[turns->key.urgency] = clock_of(turns);
	turns->clock += STRIDE / weight;
}

typedef struct TurnsEntry
{
	QueueTurns *turns;
	CandidateQueue *queue;
} TurnsEntry;

/* ---- heaps ---- */

/* Above zero if lane a goes first: by priority and age. */
static int
compare_lanes(const pairingheap_node *a, const pairingheap_node *b, void *unused)
{
	const Candidate *x = pairingheap_const_container(Candidate, node, a);
	const Candidate *y = pairingheap_const_container(Candidate, node, b);

	return lane_position_compare(&y->key, &x->key);
}

Candidate  *
queue_first_lane(const CandidateQueue *queue)
{
	return pairingheap_container(Candidate, node, queue->lanes.ph_root);
}

/* Above zero if queue a goes first: by the queues' shares, if that counts; by priority and age. */
static int
compare_queues(const pairingheap_node *a, const pairingheap_node *b, void *unused)
{
	const CandidateQueue *x = pairingheap_const_container(CandidateQueue, node, a);
	const CandidateQueue *y = pairingheap_const_container(CandidateQueue, node, b);
	int			order = x->candidates->by_turns[x->urgency] ? fairness_compare(y->turns, x->turns) : 0;

	return order != 0 ? order : lane_position_compare(&y->key, &x->key);
}

void
queue_out(CandidateQueue *queue)
{
	if (!pairingheap_is_empty(&queue->lanes))
		pairingheap_remove(&queue->candidates->queues[queue->urgency], &queue->node);
}

void
queue_in(CandidateQueue *queue)
{
	if (pairingheap_is_empty(&queue->lanes))
		return;
	queue->key = queue_first_lane(queue)->key;
	pairingheap_add(&queue->candidates->queues[queue->urgency], &queue->node);
}

/* ---- values of a fair_key ---- */

/* Above zero if lane a goes first. */
static int
compare_fair_turns(const pairingheap_node *a, const pairingheap_node *b, void *unused)
{
	const Candidate *x = pairingheap_const_container(Candidate, fair_node, a);
	const Candidate *y = pairingheap_const_container(Candidate, fair_node, b);

	if (x->turn != y->turn)
		return x->turn < y->turn ? 1 : -1;
	return lane_position_compare(&y->turn_key, &x->turn_key);
}

/* Takes the first lane of a worker's values out of the heap of the queue, which itself is in no heap. */
static void
fair_out(CandidateQueue *queue, FairLanes *fair)
{
	if (fair->first != NULL)
		pairingheap_remove(&queue->lanes, &fair->first->node);
	fair->first = NULL;
}

/* Has the first lane of a worker's values stand in the heap of the queue. */
static void
fair_in(CandidateQueue *queue, FairLanes *fair)
{
	if (pairingheap_is_empty(&fair->lanes))
		return;
	fair->first = pairingheap_container(Candidate, fair_node, fair->lanes.ph_root);
	pairingheap_add(&queue->lanes, &fair->first->node);
}

/* Puts a lane among those of its worker's values. */
static void
enter_turn(Candidate *candidate, int64 turn)
{
	candidate->turn = turn;
	candidate->turn_key = candidate->key;
	pairingheap_add(&candidate->fair->lanes, &candidate->fair_node);
}

/* Gives the lane, which has work, another turn; the queue is in no heap. */
static void
change_turn(Candidate *candidate, int64 turn)
{
	fair_out(candidate->queue, candidate->fair);
	pairingheap_remove(&candidate->fair->lanes, &candidate->fair_node);
	enter_turn(candidate, turn);
	fair_in(candidate->queue, candidate->fair);
}

/* The turn of the lane's value. */
static int64
value_turn(const Candidate *candidate)
{
	return fair_turn(candidate->fair->worker, lane_value(candidate->id), candidate->fair_weight);
}

bool
candidate_refresh_turn(Candidate *candidate)
{
	int64		turn;

	if (candidate->fair == NULL || (turn = value_turn(candidate)) == candidate->turn)
		return true;
	queue_out(candidate->queue);
	change_turn(candidate, turn);
	queue_in(candidate->queue);
	return candidate->fair->first == candidate;
}

void
candidate_order_newcomer(Candidate *candidate)
{
	if (candidate->fair == NULL || lane_position_compare(&candidate->turn_key, &lowest_position) != 0)
		return;
	queue_out(candidate->queue);
	change_turn(candidate, candidate->turn);
	queue_in(candidate->queue);
}

Candidate  *
candidate_other_value(const Candidate *candidate)
{
	pairingheap_node *root;

	if (candidate->fair == NULL || pairingheap_is_empty(&candidate->fair->lanes))
		return NULL;
	root = candidate->fair->lanes.ph_root;
	if (root == &candidate->fair_node)
		root = root->first_child;
	return root == NULL ? NULL : pairingheap_container(Candidate, fair_node, root);
}

/* ---- moving lanes ---- */

/* Moves a lane of a value; the queue is in no heap. */
static void
place_value(Candidate *candidate, bool more, LanePosition key)
{
	FairLanes  *fair = candidate->fair;
	bool		enters = more && !candidate->more;

	fair_out(candidate->queue, fair);
	if (candidate->more && !more)
		pairingheap_remove(&fair->lanes, &candidate->fair_node);
	candidate->more = more;
	candidate->key = key;
	if (enters)
		enter_turn(candidate, value_turn(candidate));
	if (pairingheap_is_empty(&fair->lanes))
		fair_turn_over(fair->worker, candidate->turn);
	fair_in(candidate->queue, fair);
}

void
candidate_place(Candidate *candidate, bool more, LanePosition key)
{
	CandidateQueue *queue = candidate->queue;

	if (candidate->more == more && lane_position_compare(&candidate->key, &key) == 0)
		return;
	queue_out(queue);
	candidate->weight->with_more += more - candidate->more;
	if (candidate->fair != NULL)
		place_value(candidate, more, key);
	else
	{
		if (candidate->more)
			pairingheap_remove(&queue->lanes, &candidate->node);
		candidate->more = more;
		candidate->key = key;
		if (more)
			pairingheap_add(&queue->lanes, &candidate->node);
	}
	queue_in(queue);
}

void
candidate_charge(Candidate *candidate)
{
	CandidateQueue *queue = candidate->queue;
	bool		moves = queue->candidates->by_turns[queue->urgency] || candidate->fair != NULL;
	int64		turn;

	if (moves)
		queue_out(queue);
	fairness_charge(queue->turns, candidate->worker->weight);
	if (candidate->fair != NULL)
	{
		turn = fair_turn_take(candidate->fair->worker, lane_value(candidate->id), candidate->fair_weight);
		if (candidate->more)
			change_turn(candidate, turn);
	}
	if (moves)
		queue_in(queue);
}

/* ---- making them ---- */

void
candidates_create(Candidates *candidates, CandidateAdmit admit, bool in_turn, uint32 set)
{
	HASHCTL		ctl = {.keysize = sizeof(int64), .entrysize = sizeof(Candidate),
	.hcxt = CurrentMemoryContext};
	HASHCTL		turns_ctl = {.keysize = sizeof(QueueTurns *), .entrysize = sizeof(TurnsEntry),
	.hcxt = CurrentMemoryContext};

	*candidates = (Candidates)
	{
		.context = CurrentMemoryContext, .admit = admit, .in_turn = in_turn, .set = set, .doubted = true,
			.next_revisit = DT_NOEND, .retry_unhinted = DT_NOEND
	};
	candidates->lanes = hash_create("queue_jobs candidates", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	candidates->by_turns_of = hash_create("queue_jobs candidates of queues", 64, &turns_ctl,
										  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	if (lane_hints_size() > 0)
		candidates->by_hint = palloc0(lane_hints_size() * sizeof(Candidate *));
	for (int i = 0; i < URGENCIES; i++)
		candidates->queues[i].ph_compare = compare_queues;
}

/* Returns the queue of the lanes that share these turns. */
static CandidateQueue *
queue_of(Candidates *candidates, QueueTurns *turns, Urgency urgency)
{
	TurnsEntry *entry = hash_search(candidates->by_turns_of, &turns, HASH_FIND, NULL);
	CandidateQueue *queue;

	if (entry != NULL)
		return entry->queue;
	queue = palloc0(sizeof(CandidateQueue));
	queue->turns = turns;
	queue->urgency = urgency;
	queue->lanes.ph_compare = compare_lanes;
	queue->candidates = candidates;
	candidates->every_queue = lappend(candidates->every_queue, queue);
	entry = hash_search(candidates->by_turns_of, &turns, HASH_ENTER, NULL);
	entry->queue = queue;
	return queue;
}

/* Returns the lanes of the values of a worker's fair_key in a queue. */
static FairLanes *
fair_lanes_of(CandidateQueue *queue, const char *worker)
{
	uint64		hash = lane_name_hash(worker);
	FairLanes  *fair;
	ListCell   *cell;

	foreach(cell, queue->fair)
	{
		fair = lfirst(cell);
		if (fair->worker == hash)
			return fair;
	}
	fair = palloc0(sizeof(FairLanes));
	fair->worker = hash;
	fair->lanes.ph_compare = compare_fair_turns;
	queue->fair = lappend(queue->fair, fair);
	return fair;
}

/* Returns the count of lanes with the worker's weight. */
static CandidateWeight *
weight_of(Candidates *candidates, const Worker *worker)
{
	CandidateWeight *weight;
	ListCell   *cell;

	foreach(cell, candidates->weights)
	{
		weight = lfirst(cell);
		if (weight->urgency == worker->urgency && weight->weight == worker->weight)
			return weight;
	}
	weight = palloc0(sizeof(CandidateWeight));
	weight->urgency = worker->urgency;
	weight->weight = worker->weight;
	candidates->weights = lappend(candidates->weights, weight);
	return weight;
}

Candidate  *
known_candidate(Candidates *candidates, int64 lane)
{
	return hash_search(candidates->lanes, &lane, HASH_FIND, NULL);
}

/* Finds out whether the process takes jobs of the lane: the same for all values of a fair_key. */
static void
admit_lane(Candidates *candidates, Candidate *candidate)
{
	if (candidates->admitted.lane != candidate->lane)
	{
		candidates->admitted = *candidate;
		if (!candidates->admit(candidate->lane, &candidates->admitted.worker, &candidates->admitted.task))
			candidates->admitted.worker = NULL;
	}
	candidate->worker = candidates->admitted.worker;
	candidate->task = candidates->admitted.task;
}

Candidate  *
candidate_of(Candidates *candidates, int64 id)
{
	Candidate  *candidate = known_candidate(candidates, id);
	Candidate	new;
	const Lane *lane;
	MemoryContext old;

	if (candidate != NULL || (lane = lane_get(id)) == NULL)
		return candidate;
	new = (Candidate)
	{
		.id = id, .lane = lane, .retry_at = DT_NOEND, .near = -1
	};
	admit_lane(candidates, &new);
	old = MemoryContextSwitchTo(candidates->context);
	if (new.worker != NULL)
	{
		new.queue = queue_of(candidates, fairness_turns(lane->queue, new.worker->urgency),
							 new.worker->urgency);
		new.weight = weight_of(candidates, new.worker);
		if (new.worker->fair_key != NULL)
		{
			new.fair = fair_lanes_of(new.queue, lane->worker);
			new.fair_weight = worker_fair_weight(new.worker, lane_value(id));
		}
	}
	candidate = hash_search(candidates->lanes, &id, HASH_ENTER, NULL);
	*candidate = new;
	MemoryContextSwitchTo(old);
	return candidate;
}

Candidate  *
candidate_of_unhinted(Candidates *candidates, int64 id)
{
	Candidate  *candidate = known_candidate(candidates, id);

	if (candidate != NULL)
		return candidate;
	candidate = candidate_of(candidates, id);
	if (candidate == NULL || candidate->worker != NULL)
		return candidate;
	hash_search(candidates->lanes, &id, HASH_REMOVE, NULL);
	return NULL;
}

/* Whether there are more candidates than hints call for. */
static bool
too_many(const Candidates *candidates)
{
	return hash_get_num_entries(candidates->lanes) >
		Max(2 * lane_hints_size() + 1000, 4 * list_length(candidates->unhinted));
}

/* Forgets lanes without a hint whose jobs the process does not take. */
static void
forget_others(Candidates *candidates)
{
	HASH_SEQ_STATUS status;
	Candidate  *candidate;

	for (int i = 0; candidates->by_hint != NULL && i < lane_hints_size(); i++)
		if (candidates->by_hint[i] != NULL && candidates->by_hint[i]->worker == NULL)
			candidates->by_hint[i] = NULL;
	hash_seq_init(&status, candidates->lanes);
	while ((candidate = hash_seq_search(&status)) != NULL)
		if (candidate->worker == NULL && !lane_hint_present(candidate->id))
			hash_search(candidates->lanes, &candidate->id, HASH_REMOVE, NULL);
}

bool
candidates_outgrown(Candidates *candidates)
{
	if (too_many(candidates))
		forget_others(candidates);
	return too_many(candidates);
}

bool
candidates_serve(Candidates *candidates, int64 lane)
{
	Candidate  *candidate = candidate_of(candidates, lane);

	return candidate != NULL && candidate->worker != NULL;
}
