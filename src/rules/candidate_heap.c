/*
 * candidate_heap.c
 *		Candidates and their heaps; see candidate_heap.h.
 *
 * Where a lane stands follows from its hint, but during a claim, for those which the claim has opened, or
 * which have jobs of its own transaction.
 */
#include "postgres.h"

#include "candidate_heap.h"
#include "utils/hsearch.h"

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

Candidate *
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

void
candidate_place(Candidate *candidate, bool more, LanePosition key)
{
	CandidateQueue *queue = candidate->queue;

	if (candidate->more == more && lane_position_compare(&candidate->key, &key) == 0)
		return;
	queue_out(queue);
	if (candidate->more)
		pairingheap_remove(&queue->lanes, &candidate->node);
	candidate->weight->with_more += more - candidate->more;
	candidate->more = more;
	candidate->key = key;
	if (more)
		pairingheap_add(&queue->lanes, &candidate->node);
	queue_in(queue);
}

/* ---- making them ---- */

void
candidates_create(Candidates *candidates, CandidateAdmit admit, bool in_turn, uint32 set)
{
	HASHCTL		ctl = {.keysize = sizeof(int32), .entrysize = sizeof(Candidate),
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

Candidate *
known_candidate(Candidates *candidates, int32 lane)
{
	return hash_search(candidates->lanes, &lane, HASH_FIND, NULL);
}

Candidate *
candidate_of(Candidates *candidates, int32 id)
{
	Candidate  *candidate = known_candidate(candidates, id);
	Candidate	new;
	const Lane *lane;
	MemoryContext old;

	if (candidate != NULL || (lane = lane_get(id)) == NULL)
		return candidate;
	new = (Candidate) {.id = id, .lane = lane, .retry_at = DT_NOEND, .near = -1};
	if (!candidates->admit(lane, &new.worker, &new.task))
		new.worker = NULL;
	old = MemoryContextSwitchTo(candidates->context);
	if (new.worker != NULL)
	{
		new.queue = queue_of(candidates, fairness_turns(lane->queue, new.worker->urgency),
							 new.worker->urgency);
		new.weight = weight_of(candidates, new.worker);
	}
	candidate = hash_search(candidates->lanes, &id, HASH_ENTER, NULL);
	*candidate = new;
	MemoryContextSwitchTo(old);
	return candidate;
}

Candidate *
candidate_of_unhinted(Candidates *candidates, int32 id)
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

bool
candidates_outgrown(const Candidates *candidates)
{
	return hash_get_num_entries(candidates->lanes) >
		Max(2 * lane_hints_size() + 1000, 4 * list_length(candidates->unhinted));
}

bool
candidates_serve(Candidates *candidates, int32 lane)
{
	Candidate  *candidate = candidate_of(candidates, lane);

	return candidate != NULL && candidate->worker != NULL;
}
