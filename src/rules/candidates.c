/*
 * candidates.c
 *		The lanes that a process takes jobs from, and which of them goes first; see candidates.h.
 *
 * Lanes with work are in heaps: in one for each queue and urgency, and these in one for each urgency. Where a
 * lane stands follows from its hint, but during a claim, for those which the claim has opened, or which have
 * jobs of its own transaction.
 *
 * Order of events: first all hints are looked at, then the claim's snapshot is taken. What is published after
 * the look is allowed for when the hint is settled (lane_hint_settle()); what was published before it, the
 * snapshot sees. A hint that we miss has given way before, and if its lane had jobs, that was counted as lost
 * before: so hints are looked at first, then what was lost, then the index.
 */
#include "postgres.h"

#include "access/xact.h"
#include "candidates.h"
#include "lane_discovery.h"
#include "settings.h"
#include "snapshot.h"
#include "test_point.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "wakeup.h"

#define NEAR_JOBS 4
#define TELL_EVERY 8			/* jobs taken */
#define DISCOVER_AT_ONCE 256	/* lanes, if there is no room for the hints of all */
#define DISCOVER_EVERY 64		/* jobs taken, as long as there are such lanes and others have jobs */

typedef struct CandidateEntry
{
	int32		lane;
	Candidate  *candidate;
} CandidateEntry;

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

static Candidate *
first_lane(const CandidateQueue *queue)
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

static void
queue_out(CandidateQueue *queue)
{
	if (!pairingheap_is_empty(&queue->lanes))
		pairingheap_remove(&queue->candidates->queues[queue->urgency], &queue->node);
}

static void
queue_in(CandidateQueue *queue)
{
	if (pairingheap_is_empty(&queue->lanes))
		return;
	queue->key = first_lane(queue)->key;
	pairingheap_add(&queue->candidates->queues[queue->urgency], &queue->node);
}

/* All that changes where a lane stands. */
static void
place(Candidate *candidate, bool more, LanePosition key)
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
	HASHCTL		ctl = {.keysize = sizeof(int32),.entrysize = sizeof(CandidateEntry),.hcxt = CurrentMemoryContext};
	HASHCTL		turns_ctl = {.keysize = sizeof(QueueTurns *),.entrysize = sizeof(TurnsEntry),.hcxt = CurrentMemoryContext};

	*candidates = (Candidates)
	{
		.context = CurrentMemoryContext,.admit = admit,.in_turn = in_turn,.set = set,.doubted = true,
			.next_revisit = DT_NOEND,.retry_unhinted = DT_NOEND
	};
	candidates->lanes = hash_create("queue_jobs candidates", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	candidates->by_turns_of = hash_create("queue_jobs candidates of queues", 64, &turns_ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	if (lane_hints_size() > 0)
		candidates->by_hint = palloc0(lane_hints_size() * sizeof(Candidate *));
	for (int i = 0; i < URGENCIES; i++)
		candidates->queues[i].ph_compare = compare_queues;
}

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

static Candidate *
known_candidate(Candidates *candidates, int32 lane)
{
	CandidateEntry *entry = hash_search(candidates->lanes, &lane, HASH_FIND, NULL);

	return entry ? entry->candidate : NULL;
}

/* NULL if there is no such lane: or not yet, so that it is asked for again when something happens there. */
static Candidate *
candidate_of(Candidates *candidates, int32 id)
{
	Candidate  *candidate = known_candidate(candidates, id);
	const Lane *lane;
	Worker	   *worker = NULL;
	struct Task *task = NULL;
	MemoryContext old;
	CandidateEntry *entry;

	if (candidate != NULL || (lane = lane_get(id)) == NULL)
		return candidate;
	if (!candidates->admit(lane, &worker, &task))
		worker = NULL;
	old = MemoryContextSwitchTo(candidates->context);
	candidate = palloc0(sizeof(Candidate));
	candidate->lane = lane;
	candidate->worker = worker;
	candidate->task = task;
	candidate->retry_at = DT_NOEND;
	candidate->near = -1;
	if (worker != NULL)
	{
		candidate->queue = queue_of(candidates, fairness_turns(lane->queue, worker->urgency), worker->urgency);
		candidate->weight = weight_of(candidates, worker);
	}
	entry = hash_search(candidates->lanes, &id, HASH_ENTER, NULL);
	entry->candidate = candidate;
	MemoryContextSwitchTo(old);
	return candidate;
}

bool
candidates_outgrown(const Candidates *candidates)
{
	return hash_get_num_entries(candidates->lanes) > Max(2 * lane_hints_size() + 1000, 4 * list_length(candidates->unhinted));
}

bool
candidates_serve(Candidates *candidates, int32 lane)
{
	Candidate  *candidate = candidate_of(candidates, lane);

	return candidate != NULL && candidate->worker != NULL;
}

/* ---- what hints tell ---- */

/* False, and nothing new is known, if the lane has no hint. */
static bool
look(Candidates *candidates, Candidate *candidate)
{
	if (!lane_hint_look(candidate->lane->id, &candidate->look, candidates->now))
		return false;
	candidate->retry_at = DT_NOEND;
	if (candidate->look.revisit_at != NO_TIME)
		candidates->next_revisit = Min(candidates->next_revisit, candidate->look.revisit_at);
	place(candidate, candidate->look.ready, candidate->look.window.start);
	return true;
}

/* A lane without a hint is gone through from its beginning. */
static void
look_without_hint(Candidates *candidates, Candidate *candidate)
{
	MemoryContext old;

	candidate->look = (LaneLook)
	{
		.window = {lowest_key, 0},.ready = true,.revisit_at = NO_TIME
	};
	candidate->retry_at = DT_NOEND;
	place(candidate, true, lowest_key);
	if (candidate->unhinted)
		return;
	old = MemoryContextSwitchTo(candidates->context);
	candidates->unhinted = lappend(candidates->unhinted, candidate);
	candidate->unhinted = true;
	MemoryContextSwitchTo(old);
}

/* The candidate of a hint's lane, which is new to us only if "make"; *unknown tells that it would be. */
static Candidate *
candidate_of_hint(Candidates *candidates, int index, bool make, bool *unknown)
{
	int32		lane = lane_hint_lane(index);
	Candidate  *candidate = candidates->by_hint[index];

	if (lane == 0)
		return NULL;
	if (candidate == NULL || candidate->lane->id != lane)
	{
		candidate = make ? candidate_of(candidates, lane) : known_candidate(candidates, lane);
		if (candidate != NULL)
			candidates->by_hint[index] = candidate;
		else if (!make)
			*unknown = true;
	}
	return candidate != NULL && candidate->worker != NULL ? candidate : NULL;
}

/*
 * Of lanes that are new to us those that may have jobs. What was counted as seen before this is seen by it.
 */
static void
look_at_all(Candidates *candidates)
{
	HASH_SEQ_STATUS status;
	CandidateEntry *entry;

	candidates->next_revisit = DT_NOEND;
	hash_seq_init(&status, candidates->lanes);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		entry->candidate->walk = NULL;	/* of a claim that an error has ended */
		entry->candidate->noted = false;
		if (entry->candidate->worker != NULL && !look(candidates, entry->candidate) && entry->candidate->unhinted)
			look_without_hint(candidates, entry->candidate);
	}
	for (int i = 0; i < lane_hints_size(); i++)
	{
		int32		lane = lane_hint_lane(i);
		LaneLook	seen;
		Candidate  *candidate;

		if (lane == 0 || known_candidate(candidates, lane) != NULL || !lane_hint_look(lane, &seen, candidates->now) ||
			(!seen.ready && seen.revisit_at == NO_TIME))
			continue;
		candidate = candidate_of(candidates, lane);
		if (candidate != NULL && candidate->worker != NULL)
			(void) look(candidates, candidate);
	}
}

static void
retry_unhinted(Candidates *candidates)
{
	ListCell   *cell;

	candidates->retry_unhinted = DT_NOEND;
	foreach(cell, candidates->unhinted)
	{
		Candidate  *candidate = lfirst(cell);

		if (lane_hint_present(candidate->lane->id) && look(candidates, candidate))
		{
			candidate->unhinted = false;
			candidates->unhinted = foreach_delete_current(candidates->unhinted, cell);
			continue;
		}
		if (candidate->retry_at <= candidates->now)
			look_without_hint(candidates, candidate);
		candidates->retry_unhinted = Min(candidates->retry_unhinted, candidate->retry_at);
	}
}

static void
found_unhinted(int32 lane, void *argument)
{
	Candidates *candidates = argument;
	Candidate  *candidate = candidate_of(candidates, lane);

	candidates->missing = true;
	if (candidate != NULL && candidate->worker != NULL)
		look_without_hint(candidates, candidate);
}

static bool
look_at_hint_changes(Candidates *candidates, bool make)
{
	bool		all = false;
	bool		unknown = false;
	int			index;

	while (candidates->by_hint != NULL)
	{
		uint64		before = candidates->seen;
		ChangeResult result = lane_hint_next_change(&candidates->seen, &index);
		Candidate  *candidate;

		if (result == CHANGES_END)
			break;
		else if (result == CHANGES_LOST)
			all = true;
		else if (!all && (candidate = candidate_of_hint(candidates, index, make, &unknown)) != NULL)
			(void) look(candidates, candidate);
		if (unknown)
			candidates->seen = before;
		if (unknown)
			return false;
	}
	return !all;
}

static bool
any_has_more(const Candidates *candidates)
{
	for (int i = 0; i < URGENCIES; i++)
		if (!pairingheap_is_empty(&candidates->queues[i]))
			return true;
	return false;
}

/*
 * What is lost is looked for in the index: all of it at first, and where there are no hints at all; then a
 * part at a time, when no other job is known or some were taken.
 */
static void
discover(Candidates *candidates)
{
	uint64		lost = lane_hints_lost();
	bool		first = candidates->lost == 0 || candidates->by_hint == NULL;

	if (candidates->by_hint != NULL && candidates->lost == lost)
		return;
	if (lane_hints_complete(lost))
	{
		candidates->lost = lost;
		candidates->position = 0;
		return;
	}
	do
	{
		if (!first && any_has_more(candidates) && candidates->taken_since < DISCOVER_EVERY)
			return;
		candidates->taken_since = 0;
		if (candidates->position == 0)
		{
			candidates->losing = lost;
			candidates->missing = false;
		}
		if (lane_hints_discover(&candidates->position, first ? PG_INT32_MAX : DISCOVER_AT_ONCE, found_unhinted, candidates))
		{
			candidates->lost = candidates->losing;
			if (!candidates->missing)
				lane_hints_tell_complete(candidates->lost);
		}
		if (candidates->by_hint != NULL && !look_at_hint_changes(candidates, true))
			look_at_all(candidates);
	} while (candidates->by_hint != NULL && candidates->lost != lost);
}

static void
look_at_changes(Candidates *candidates, TimestampTz now)
{
	bool		all = candidates->doubted || candidates->next_revisit <= now;

	candidates->now = now;
	if (candidates->doubted)
		candidates->position = 0;
	candidates->doubted = true; /* if an error comes before we have looked */
	if (!look_at_hint_changes(candidates, true) || all)
		look_at_all(candidates);
	if (candidates->retry_unhinted <= now)
		retry_unhinted(candidates);
	discover(candidates);
	candidates->doubted = false;
}

/*
 * False if there is something that we cannot look at now: only hints, of lanes that we know, need no table.
 */
static bool
look_outside_transaction(Candidates *candidates, TimestampTz now)
{
	candidates->now = now;
	if (candidates->doubted || candidates->next_revisit <= now || candidates->retry_unhinted <= now || candidates->lost != lane_hints_lost())
		return false;
	if (look_at_hint_changes(candidates, false))
		return true;
	candidates->doubted = true;
	return false;
}

TimestampTz
candidates_next_revisit(Candidates *candidates)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		is_now = candidates->next_revisit <= now;

	if (candidates->admit == NULL || candidates->by_hint == NULL)
		return DT_NOEND;		/* not made yet; or without hints, by which alone that is known */
	if (!IsTransactionState())
		is_now = !look_outside_transaction(candidates, now);
	else
		look_at_changes(candidates, now);	/* which forgets a time that has come */
	return is_now ? now : Min(candidates->next_revisit, candidates->retry_unhinted);
}

/* What this transaction has noted is known to no hint yet. */
static void
look_at_own(Candidates *candidates)
{
	int32		lane;
	LanePosition key;
	TouchedWalk touched = {0};

	while (wakeup_next_touched(&touched, candidates->now, &lane, &key))
	{
		Candidate  *candidate = candidate_of(candidates, lane);

		if (candidate == NULL || candidate->worker == NULL)
			continue;
		candidates->altered = lappend(candidates->altered, candidate);
		candidate->noted = true;
		if (!candidate->more || lane_position_compare(&key, &candidate->key) < 0)
			place(candidate, true, lane_position_compare(&key, &candidate->look.window.start) < 0 ? key : candidate->look.window.start);
	}
}

void
candidates_begin(Candidates *candidates, LiveTable *table, TimestampTz now)
{
	look_at_changes(candidates, now);
	candidates->doubted = true; /* until candidates_end() */
	candidates->table = table;
	candidates->snapshot = NULL;
	candidates->altered = NIL;
	candidates->has_urgency = false;
	look_at_own(candidates);
}

/* ---- which one goes first ---- */

/* Queues have shares if workers of that urgency which have jobs have different weights. */
static bool
weights_differ(const Candidates *candidates, Urgency urgency)
{
	int			different = 0;
	ListCell   *cell;

	foreach(cell, candidates->weights)
	{
		const CandidateWeight *weight = lfirst(cell);

		different += weight->urgency == urgency && weight->with_more > 0;
	}
	return different > 1;
}

static CandidateQueue *
first_queue(Candidates *candidates, Urgency urgency)
{
	pairingheap *queues = &candidates->queues[urgency];
	bool		by_turns = candidates->in_turn || weights_differ(candidates, urgency);
	ListCell   *cell;

	if (by_turns != candidates->by_turns[urgency])
	{
		candidates->by_turns[urgency] = by_turns;
		queues->ph_root = NULL;
		foreach(cell, candidates->every_queue)
			if (((CandidateQueue *) lfirst(cell))->urgency == urgency)
				queue_in(lfirst(cell));
	}
	return pairingheap_container(CandidateQueue, node, queues->ph_root);
}

void
candidates_advance(Candidate *candidate, LimitVerdict verdict)
{
	LaneWalk   *walk = candidate->walk;

	if (verdict == LIMIT_WORKER)
	{
		place(candidate, false, candidate->key);
		return;
	}
	walk->over = !lane_scan_next(&walk->scan, &walk->job);
	walk->seen += !walk->over;
	place(candidate, !walk->over, walk->over ? candidate->key : job_key(&walk->job));
}

static void
open_lane(Candidates *candidates, Candidate *candidate)
{
	if (candidates->snapshot == NULL)
		candidates->snapshot = engine_snapshot();
	candidate->walk = palloc0(sizeof(LaneWalk));
	candidate->walk->refusals.window = (LaneWindow)
	{
		.start = candidate->key,.published = candidate->look.window.published
	};
	candidates->altered = lappend(candidates->altered, candidate);
	lane_scan_begin(&candidate->walk->scan, candidates->table, candidate->lane->id, candidate->key, candidates->snapshot, candidates->now);
	if (candidate->near < 0)
		candidate->near = (int64) NEAR_IDS * hash_get_num_entries(candidates->lanes); /* as if jobs came to all lanes alike */
	candidate->walk->scan.near = candidate->near;
	candidates_advance(candidate, LIMIT_FREE);
}

/* Of those that are about to be passed over for the first time the first job is looked at. */
static void
introduce_urgencies(Candidates *candidates)
{
	bool		any_above = false;

	for (int i = 0; i < URGENCIES; i++)
	{
		Candidate  *candidate;

		if (pairingheap_is_empty(&candidates->queues[i]))
			continue;
		if (any_above && fairness_is_new(candidates->set, i))
		{
			candidate = first_lane(first_queue(candidates, i));
			if (candidate->walk == NULL)
				open_lane(candidates, candidate);
			if (candidate->more)
				fairness_introduce(candidates->set, i, candidate->walk->job.run_at, candidates->now);
		}
		any_above = true;
	}
}

/* False if no lane has work. */
static bool
choose_urgency(Candidates *candidates, bool look)
{
	bool		has_work[URGENCIES];
	bool		any = false;

	if (!candidates->has_urgency && !look)
		introduce_urgencies(candidates);
	for (int i = 0; i < URGENCIES; i++)
	{
		has_work[i] = !pairingheap_is_empty(&candidates->queues[i]);
		any = any || has_work[i];
	}
	if (!any && !look)
		fairness_idle(candidates->set);
	if (!any)
		return false;
	if (!candidates->has_urgency && !look)
		candidates->urgency = fairness_urgency(candidates->set, has_work, candidates->now);
	else if (!candidates->has_urgency || !has_work[candidates->urgency])
		for (candidates->urgency = 0; !has_work[candidates->urgency];)
			candidates->urgency++;
	candidates->has_urgency = true;
	return true;
}

Candidate *
candidates_first(Candidates *candidates, bool look)
{
	while (choose_urgency(candidates, look))
	{
		Candidate  *candidate = first_lane(first_queue(candidates, candidates->urgency));

		if (candidate->walk != NULL)
			return candidate;
		open_lane(candidates, candidate);

		/* Whose turn it is does not depend on where the job stands, but among lanes of one queue. */
		if (candidates->in_turn && candidate->more && first_lane(candidate->queue) == candidate)
			return candidate;
	}
	return NULL;
}

/* No limits, which count on the order of a key, and no jobs that the hint does not know of. */
static bool
may_skip(const Candidate *candidate)
{
	return lane_hint_present(candidate->lane->id) && !limit_any(candidate->worker) && !candidate->noted;
}

/* Before the cursor passes jobs whose leases hold. */
static void
tell_revisit(const Candidate *candidate)
{
	if (candidate->walk->scan.revisit_at != NO_TIME)
		(void) lane_hint_revisit(candidate->lane->id, candidate->walk->scan.revisit_at, false);
}

/*
 * Where others walk over the same jobs: a session that takes many tells from time to time how far it is, and
 * one that meets a job which another has goes on from there, instead of walking over all that the others
 * hold.
 */
static void
tell(const Candidate *candidate)
{
	if (!may_skip(candidate))
		return;
	tell_revisit(candidate);
	lane_hint_settle(candidate->lane->id, &candidate->walk->refusals.window, &candidate->walk->tried, false);
	test_point("lane_told");
}

static void
pass_by(Candidates *candidates, Candidate *candidate)
{
	LaneWalk   *walk = candidate->walk;

	if (!may_skip(candidate))
		return;
	(void) lane_hint_look(candidate->lane->id, &candidate->look, candidates->now);
	if (lane_position_compare(&candidate->look.window.start, &walk->tried) <= 0)
		return;
	lane_scan_move(&walk->scan, candidate->look.window.start);
	walk->seen = 0;
}

void
candidates_tried(Candidates *candidates, Candidate *candidate, bool taken)
{
	LaneWalk   *walk = candidate->walk;
	bool		by_turns = candidates->by_turns[candidate->queue->urgency];

	walk->tried = candidate->key;
	walk->any_passed_by = walk->any_passed_by || !taken;
	if (!taken)
	{
		pass_by(candidates, candidate);
		return;
	}
	walk->taken++;
	candidates->taken_since++;
	if (walk->taken % TELL_EVERY == 0)
		tell(candidate);
	if (by_turns)
		queue_out(candidate->queue);
	fairness_charge(candidate->queue->turns, candidate->worker->weight);
	if (by_turns)
		queue_in(candidate->queue);
	candidates->has_urgency = false;
}

/* Under a node of a heap there is another one, or beside those under it. */
static Candidate *
other_in(const pairingheap_node *node, const Candidate *taken)
{
	Candidate  *candidate;

	if (node == NULL)
		return NULL;
	candidate = pairingheap_container(Candidate, node, (pairingheap_node *) node);
	if (candidate != taken)
		return candidate;
	return node->first_child == NULL ? NULL : pairingheap_container(Candidate, node, node->first_child);
}

Candidate *
candidates_other(Candidates *candidates, const Candidate *taken)
{
	for (int i = 0; i < URGENCIES; i++)
	{
		pairingheap_node *first = candidates->queues[i].ph_root;
		CandidateQueue *queue;
		Candidate  *other;

		if (first == NULL)
			continue;
		queue = pairingheap_container(CandidateQueue, node, first);
		other = other_in(queue->lanes.ph_root, taken);
		if (other == NULL && first->first_child != NULL)
			other = first_lane(pairingheap_container(CandidateQueue, node, first->first_child));
		if (other != NULL)
			return other;
	}
	return NULL;
}

/* ---- what was found out ---- */

/* Of a lane without refusals. A job that was seen but not tried is the lane's first, as far as is known. */
static void
settle_hint(const Candidate *candidate, bool tried)
{
	const LaneWalk *walk = candidate->walk;
	const LaneWindow *window = &walk->refusals.window;
	bool		any_tried = walk->taken > 0 || walk->any_passed_by;
	LanePosition before;

	if (walk->over && !walk->any_passed_by)
		lane_hint_settle(candidate->lane->id, window, NULL, true);
	else if (!tried && walk->taken == 0 && any_tried)
		return;
	else if (candidate->more && (!any_tried || lane_position_compare(&candidate->key, &walk->tried) != 0))
	{
		before = (LanePosition)
		{
			.priority = candidate->key.priority,.id = candidate->key.id - 1
		};
		lane_hint_settle(candidate->lane->id, window, &before, false);
	}
	else if (any_tried)
		lane_hint_settle(candidate->lane->id, window, &walk->tried, false);
}

/*
 * Where lanes are many, the next job of one stands far behind the first: some of them are to be near. What
 * was far once is forgotten slowly, for jobs that come at random stand now close together, now apart.
 */
static void
learn_density(Candidate *candidate)
{
	const LaneWalk *walk = candidate->walk;
	const LanePosition *start = &walk->scan.start;

	if (walk->over || candidate->key.priority != start->priority || start->id == PG_INT64_MIN)
		candidate->near = ALL_NEAR;
	else if (candidate->more)
		candidate->near = Max(Max(NEAR_IDS, candidate->near - candidate->near / 8), NEAR_JOBS * (candidate->key.id - start->id) / walk->seen);
}

/*
 * Of a lane without a hint only we know. What other sessions free there, or add, they tell as lost, and it is
 * found again from its beginning; jobs that are refused by a limit, too, or when it is time.
 */
static void
settle_unhinted(Candidates *candidates, Candidate *candidate, bool tried)
{
	const LaneWalk *walk = candidate->walk;
	bool		refused = walk->refusals.any;
	bool		more = !refused && (!walk->over || walk->any_passed_by);
	LanePosition key = walk->refusals.window.start;

	if (walk->taken > 0 || (tried && walk->any_passed_by) || (walk->over && walk->any_passed_by))
	{
		key = walk->tried;
		key.id += key.id < PG_INT64_MAX;
	}
	if (candidates->by_hint == NULL)
		return;					/* all lanes are looked up again each time */
	look_without_hint(candidates, candidate);
	place(candidate, more, more ? key : candidate->key);
	if (walk->scan.revisit_at != NO_TIME)
		candidate->retry_at = walk->scan.revisit_at;
	if (refused)
		candidate->retry_at = Min(candidate->retry_at, walk->refusals.retry_at);
	candidates->retry_unhinted = Min(candidates->retry_unhinted, candidate->retry_at);
}

static void
settle(Candidates *candidates, Candidate *candidate, bool tried)
{
	LaneWalk   *walk = candidate->walk;

	learn_density(candidate);
	tell_revisit(candidate);
	if (!limit_settle(candidate->lane->id, &walk->refusals, candidate->more ? &walk->tried : NULL))
		settle_hint(candidate, tried);
	if (!lane_hint_present(candidate->lane->id))
		settle_unhinted(candidates, candidate, tried);
	lane_scan_end(&walk->scan);
	candidate->walk = NULL;
}

void
candidates_end(Candidates *candidates, bool tried)
{
	ListCell   *cell;

	foreach(cell, candidates->altered)
		if (((Candidate *) lfirst(cell))->walk != NULL)
		settle(candidates, lfirst(cell), tried);
	foreach(cell, candidates->altered)
	{
		Candidate  *candidate = lfirst(cell);

		candidate->noted = false;
		(void) look(candidates, candidate);
	}
	if (candidates->snapshot != NULL)
		engine_snapshot_end(candidates->snapshot);
	candidates->doubted = false;
}
