/*
 * heads.c
 *		The lanes that a process takes jobs from, and which of them goes first; see heads.h.
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
#include "heads.h"
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

typedef struct HeadEntry
{
	int32		lane;
	LaneHead   *head;
} HeadEntry;

typedef struct TurnsEntry
{
	QueueTurns *turns;
	QueueHeads *queue;
} TurnsEntry;

/* ---- heaps ---- */

/* Above zero if lane a goes first: by priority and age. */
static int
compare_lanes(const pairingheap_node *a, const pairingheap_node *b, void *unused)
{
	const LaneHead *x = pairingheap_const_container(LaneHead, node, a);
	const LaneHead *y = pairingheap_const_container(LaneHead, node, b);

	return lane_key_compare(&y->key, &x->key);
}

static LaneHead *
first_lane(const QueueHeads *queue)
{
	return pairingheap_container(LaneHead, node, queue->lanes.ph_root);
}

/* Above zero if queue a goes first: by the queues' shares, if that counts; by priority and age. */
static int
compare_queues(const pairingheap_node *a, const pairingheap_node *b, void *unused)
{
	const QueueHeads *x = pairingheap_const_container(QueueHeads, node, a);
	const QueueHeads *y = pairingheap_const_container(QueueHeads, node, b);
	int			order = x->heads->by_turns[x->urgency] ? order_compare(y->turns, x->turns) : 0;

	return order != 0 ? order : lane_key_compare(&y->key, &x->key);
}

static void
queue_out(QueueHeads *queue)
{
	if (!pairingheap_is_empty(&queue->lanes))
		pairingheap_remove(&queue->heads->queues[queue->urgency], &queue->node);
}

static void
queue_in(QueueHeads *queue)
{
	if (pairingheap_is_empty(&queue->lanes))
		return;
	queue->key = first_lane(queue)->key;
	pairingheap_add(&queue->heads->queues[queue->urgency], &queue->node);
}

/* All that changes where a lane stands. */
static void
place(LaneHead *head, bool more, LaneKey key)
{
	QueueHeads *queue = head->queue;

	if (head->more == more && lane_key_compare(&head->key, &key) == 0)
		return;
	queue_out(queue);
	if (head->more)
		pairingheap_remove(&queue->lanes, &head->node);
	head->weight->with_more += more - head->more;
	head->more = more;
	head->key = key;
	if (more)
		pairingheap_add(&queue->lanes, &head->node);
	queue_in(queue);
}

/* ---- making them ---- */

void
heads_create(Heads *heads, HeadsAdmit admit, bool in_turn, uint32 set)
{
	HASHCTL		ctl = {.keysize = sizeof(int32),.entrysize = sizeof(HeadEntry),.hcxt = CurrentMemoryContext};
	HASHCTL		turns_ctl = {.keysize = sizeof(QueueTurns *),.entrysize = sizeof(TurnsEntry),.hcxt = CurrentMemoryContext};

	*heads = (Heads)
	{
		.context = CurrentMemoryContext,.admit = admit,.in_turn = in_turn,.set = set,.doubted = true,
			.next_revisit = DT_NOEND,.retry_unhinted = DT_NOEND
	};
	heads->lanes = hash_create("queue_jobs heads", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	heads->by_turns_of = hash_create("queue_jobs heads of queues", 64, &turns_ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	if (lane_hints_size() > 0)
		heads->by_hint = palloc0(lane_hints_size() * sizeof(LaneHead *));
	for (int i = 0; i < URGENCIES; i++)
		heads->queues[i].ph_compare = compare_queues;
}

static QueueHeads *
queue_of(Heads *heads, QueueTurns *turns, Urgency urgency)
{
	TurnsEntry *entry = hash_search(heads->by_turns_of, &turns, HASH_FIND, NULL);
	QueueHeads *queue;

	if (entry != NULL)
		return entry->queue;
	queue = palloc0(sizeof(QueueHeads));
	queue->turns = turns;
	queue->urgency = urgency;
	queue->lanes.ph_compare = compare_lanes;
	queue->heads = heads;
	heads->every_queue = lappend(heads->every_queue, queue);
	entry = hash_search(heads->by_turns_of, &turns, HASH_ENTER, NULL);
	entry->queue = queue;
	return queue;
}

static HeadsWeight *
weight_of(Heads *heads, const Worker *worker)
{
	HeadsWeight *weight;
	ListCell   *cell;

	foreach(cell, heads->weights)
	{
		weight = lfirst(cell);
		if (weight->urgency == worker->urgency && weight->weight == worker->weight)
			return weight;
	}
	weight = palloc0(sizeof(HeadsWeight));
	weight->urgency = worker->urgency;
	weight->weight = worker->weight;
	heads->weights = lappend(heads->weights, weight);
	return weight;
}

static LaneHead *
known_head(Heads *heads, int32 lane)
{
	HeadEntry  *entry = hash_search(heads->lanes, &lane, HASH_FIND, NULL);

	return entry ? entry->head : NULL;
}

/* NULL if there is no such lane: or not yet, so that it is asked for again when something happens there. */
static LaneHead *
head_of(Heads *heads, int32 id)
{
	LaneHead   *head = known_head(heads, id);
	const Lane *lane;
	Worker	   *worker = NULL;
	struct Task *task = NULL;
	MemoryContext old;
	HeadEntry  *entry;

	if (head != NULL || (lane = lane_get(id)) == NULL)
		return head;
	if (!heads->admit(lane, &worker, &task))
		worker = NULL;
	old = MemoryContextSwitchTo(heads->context);
	head = palloc0(sizeof(LaneHead));
	head->lane = lane;
	head->worker = worker;
	head->task = task;
	head->retry_at = DT_NOEND;
	head->near = -1;
	if (worker != NULL)
	{
		head->queue = queue_of(heads, order_turns(lane->queue, worker->urgency), worker->urgency);
		head->weight = weight_of(heads, worker);
	}
	entry = hash_search(heads->lanes, &id, HASH_ENTER, NULL);
	entry->head = head;
	MemoryContextSwitchTo(old);
	return head;
}

bool
heads_outgrown(const Heads *heads)
{
	return hash_get_num_entries(heads->lanes) > Max(2 * lane_hints_size() + 1000, 4 * list_length(heads->unhinted));
}

bool
heads_serve(Heads *heads, int32 lane)
{
	LaneHead   *head = head_of(heads, lane);

	return head != NULL && head->worker != NULL;
}

/* ---- what hints tell ---- */

/* False, and nothing new is known, if the lane has no hint. */
static bool
look(Heads *heads, LaneHead *head)
{
	if (!lane_hint_look(head->lane->id, &head->look, heads->now))
		return false;
	head->retry_at = DT_NOEND;
	if (head->look.revisit_at != NO_TIME)
		heads->next_revisit = Min(heads->next_revisit, head->look.revisit_at);
	place(head, head->look.ready, head->look.window.start);
	return true;
}

/* A lane without a hint is gone through from its beginning. */
static void
look_without_hint(Heads *heads, LaneHead *head)
{
	MemoryContext old;

	head->look = (LaneLook)
	{
		.window = {lowest_key, 0},.ready = true,.revisit_at = NO_TIME
	};
	head->retry_at = DT_NOEND;
	place(head, true, lowest_key);
	if (head->unhinted)
		return;
	old = MemoryContextSwitchTo(heads->context);
	heads->unhinted = lappend(heads->unhinted, head);
	head->unhinted = true;
	MemoryContextSwitchTo(old);
}

/* The head of a hint's lane, which is new to us only if "make"; *unknown tells that it would be. */
static LaneHead *
head_of_hint(Heads *heads, int index, bool make, bool *unknown)
{
	int32		lane = lane_hint_lane(index);
	LaneHead   *head = heads->by_hint[index];

	if (lane == 0)
		return NULL;
	if (head == NULL || head->lane->id != lane)
	{
		head = make ? head_of(heads, lane) : known_head(heads, lane);
		if (head != NULL)
			heads->by_hint[index] = head;
		else if (!make)
			*unknown = true;
	}
	return head != NULL && head->worker != NULL ? head : NULL;
}

/*
 * Of lanes that are new to us those that may have jobs. What was counted as seen before this is seen by it.
 */
static void
look_at_all(Heads *heads)
{
	HASH_SEQ_STATUS status;
	HeadEntry  *entry;

	heads->next_revisit = DT_NOEND;
	hash_seq_init(&status, heads->lanes);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		entry->head->walk = NULL;	/* of a claim that an error has ended */
		entry->head->noted = false;
		if (entry->head->worker != NULL && !look(heads, entry->head) && entry->head->unhinted)
			look_without_hint(heads, entry->head);
	}
	for (int i = 0; i < lane_hints_size(); i++)
	{
		int32		lane = lane_hint_lane(i);
		LaneLook	seen;
		LaneHead   *head;

		if (lane == 0 || known_head(heads, lane) != NULL || !lane_hint_look(lane, &seen, heads->now) ||
			(!seen.ready && seen.revisit_at == NO_TIME))
			continue;
		head = head_of(heads, lane);
		if (head != NULL && head->worker != NULL)
			(void) look(heads, head);
	}
}

static void
retry_unhinted(Heads *heads)
{
	ListCell   *cell;

	heads->retry_unhinted = DT_NOEND;
	foreach(cell, heads->unhinted)
	{
		LaneHead   *head = lfirst(cell);

		if (lane_hint_present(head->lane->id) && look(heads, head))
		{
			head->unhinted = false;
			heads->unhinted = foreach_delete_current(heads->unhinted, cell);
			continue;
		}
		if (head->retry_at <= heads->now)
			look_without_hint(heads, head);
		heads->retry_unhinted = Min(heads->retry_unhinted, head->retry_at);
	}
}

static void
found_unhinted(int32 lane, void *argument)
{
	Heads	   *heads = argument;
	LaneHead   *head = head_of(heads, lane);

	heads->missing = true;
	if (head != NULL && head->worker != NULL)
		look_without_hint(heads, head);
}

static bool
look_at_hint_changes(Heads *heads, bool make)
{
	bool		all = false;
	bool		unknown = false;
	int			index;

	while (heads->by_hint != NULL)
	{
		uint64		before = heads->seen;
		ChangeResult result = lane_hint_next_change(&heads->seen, &index);
		LaneHead   *head;

		if (result == CHANGES_END)
			break;
		else if (result == CHANGES_LOST)
			all = true;
		else if (!all && (head = head_of_hint(heads, index, make, &unknown)) != NULL)
			(void) look(heads, head);
		if (unknown)
			heads->seen = before;
		if (unknown)
			return false;
	}
	return !all;
}

static bool
any_has_more(const Heads *heads)
{
	for (int i = 0; i < URGENCIES; i++)
		if (!pairingheap_is_empty(&heads->queues[i]))
			return true;
	return false;
}

/*
 * What is lost is looked for in the index: all of it at first, and where there are no hints at all; then a
 * part at a time, when no other job is known or some were taken.
 */
static void
discover(Heads *heads)
{
	uint64		lost = lane_hints_lost();
	bool		first = heads->lost == 0 || heads->by_hint == NULL;

	if (heads->by_hint != NULL && heads->lost == lost)
		return;
	if (lane_hints_complete(lost))
	{
		heads->lost = lost;
		heads->position = 0;
		return;
	}
	do
	{
		if (!first && any_has_more(heads) && heads->taken_since < DISCOVER_EVERY)
			return;
		heads->taken_since = 0;
		if (heads->position == 0)
		{
			heads->losing = lost;
			heads->missing = false;
		}
		if (lane_hints_discover(&heads->position, first ? PG_INT32_MAX : DISCOVER_AT_ONCE, found_unhinted, heads))
		{
			heads->lost = heads->losing;
			if (!heads->missing)
				lane_hints_tell_complete(heads->lost);
		}
		if (heads->by_hint != NULL && !look_at_hint_changes(heads, true))
			look_at_all(heads);
	} while (heads->by_hint != NULL && heads->lost != lost);
}

static void
look_at_changes(Heads *heads, TimestampTz now)
{
	bool		all = heads->doubted || heads->next_revisit <= now;

	heads->now = now;
	if (heads->doubted)
		heads->position = 0;
	heads->doubted = true;		/* if an error comes before we have looked */
	if (!look_at_hint_changes(heads, true) || all)
		look_at_all(heads);
	if (heads->retry_unhinted <= now)
		retry_unhinted(heads);
	discover(heads);
	heads->doubted = false;
}

/*
 * False if there is something that we cannot look at now: only hints, of lanes that we know, need no table.
 */
static bool
look_outside_transaction(Heads *heads, TimestampTz now)
{
	heads->now = now;
	if (heads->doubted || heads->next_revisit <= now || heads->retry_unhinted <= now || heads->lost != lane_hints_lost())
		return false;
	if (look_at_hint_changes(heads, false))
		return true;
	heads->doubted = true;
	return false;
}

TimestampTz
heads_next_revisit(Heads *heads)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		is_now = heads->next_revisit <= now;

	if (heads->admit == NULL || heads->by_hint == NULL)
		return DT_NOEND;		/* not made yet; or without hints, by which alone that is known */
	if (!IsTransactionState())
		is_now = !look_outside_transaction(heads, now);
	else
		look_at_changes(heads, now);	/* which forgets a time that has come */
	return is_now ? now : Min(heads->next_revisit, heads->retry_unhinted);
}

/* What this transaction has noted is known to no hint yet. */
static void
look_at_own(Heads *heads)
{
	int32		lane;
	LaneKey		key;
	TouchedWalk touched = {0};

	while (wakeup_next_touched(&touched, heads->now, &lane, &key))
	{
		LaneHead   *head = head_of(heads, lane);

		if (head == NULL || head->worker == NULL)
			continue;
		heads->altered = lappend(heads->altered, head);
		head->noted = true;
		if (!head->more || lane_key_compare(&key, &head->key) < 0)
			place(head, true, lane_key_compare(&key, &head->look.window.start) < 0 ? key : head->look.window.start);
	}
}

void
heads_begin(Heads *heads, LiveTable *table, TimestampTz now)
{
	look_at_changes(heads, now);
	heads->doubted = true;		/* until heads_end() */
	heads->table = table;
	heads->snapshot = NULL;
	heads->altered = NIL;
	heads->has_urgency = false;
	look_at_own(heads);
}

/* ---- which one goes first ---- */

/* Queues have shares if workers of that urgency which have jobs have different weights. */
static bool
weights_differ(const Heads *heads, Urgency urgency)
{
	int			different = 0;
	ListCell   *cell;

	foreach(cell, heads->weights)
	{
		const HeadsWeight *weight = lfirst(cell);

		different += weight->urgency == urgency && weight->with_more > 0;
	}
	return different > 1;
}

static QueueHeads *
first_queue(Heads *heads, Urgency urgency)
{
	pairingheap *queues = &heads->queues[urgency];
	bool		by_turns = heads->in_turn || weights_differ(heads, urgency);
	ListCell   *cell;

	if (by_turns != heads->by_turns[urgency])
	{
		heads->by_turns[urgency] = by_turns;
		queues->ph_root = NULL;
		foreach(cell, heads->every_queue)
			if (((QueueHeads *) lfirst(cell))->urgency == urgency)
				queue_in(lfirst(cell));
	}
	return pairingheap_container(QueueHeads, node, queues->ph_root);
}

void
heads_advance(LaneHead *head, LimitVerdict verdict)
{
	LaneWalk   *walk = head->walk;

	if (verdict == LIMIT_WORKER)
	{
		place(head, false, head->key);
		return;
	}
	walk->over = !lane_scan_next(&walk->scan, &walk->job);
	walk->seen += !walk->over;
	place(head, !walk->over, walk->over ? head->key : job_key(&walk->job));
}

static void
open_lane(Heads *heads, LaneHead *head)
{
	if (heads->snapshot == NULL)
		heads->snapshot = engine_snapshot();
	head->walk = palloc0(sizeof(LaneWalk));
	head->walk->refusals.window = (LaneWindow)
	{
		.start = head->key,.published = head->look.window.published
	};
	heads->altered = lappend(heads->altered, head);
	lane_scan_begin(&head->walk->scan, heads->table, head->lane->id, head->key, heads->snapshot, heads->now);
	if (head->near < 0)
		head->near = (int64) NEAR_IDS * hash_get_num_entries(heads->lanes); /* as if jobs came to all lanes alike */
	head->walk->scan.near = head->near;
	heads_advance(head, LIMIT_FREE);
}

/* Of those that are about to be passed over for the first time the first job is looked at. */
static void
introduce_urgencies(Heads *heads)
{
	bool		any_above = false;

	for (int i = 0; i < URGENCIES; i++)
	{
		LaneHead   *head;

		if (pairingheap_is_empty(&heads->queues[i]))
			continue;
		if (any_above && order_is_new(heads->set, i))
		{
			head = first_lane(first_queue(heads, i));
			if (head->walk == NULL)
				open_lane(heads, head);
			if (head->more)
				order_introduce(heads->set, i, head->walk->job.run_at, heads->now);
		}
		any_above = true;
	}
}

/* False if no lane has work. */
static bool
choose_urgency(Heads *heads, bool look)
{
	bool		has_work[URGENCIES];
	bool		any = false;

	if (!heads->has_urgency && !look)
		introduce_urgencies(heads);
	for (int i = 0; i < URGENCIES; i++)
	{
		has_work[i] = !pairingheap_is_empty(&heads->queues[i]);
		any = any || has_work[i];
	}
	if (!any && !look)
		order_idle(heads->set);
	if (!any)
		return false;
	if (!heads->has_urgency && !look)
		heads->urgency = order_urgency(heads->set, has_work, heads->now);
	else if (!heads->has_urgency || !has_work[heads->urgency])
		for (heads->urgency = 0; !has_work[heads->urgency];)
			heads->urgency++;
	heads->has_urgency = true;
	return true;
}

LaneHead *
heads_first(Heads *heads, bool look)
{
	while (choose_urgency(heads, look))
	{
		LaneHead   *head = first_lane(first_queue(heads, heads->urgency));

		if (head->walk != NULL)
			return head;
		open_lane(heads, head);

		/* Whose turn it is does not depend on where the job stands, but among lanes of one queue. */
		if (heads->in_turn && head->more && first_lane(head->queue) == head)
			return head;
	}
	return NULL;
}

/* No limits, which count on the order of a key, and no jobs that the hint does not know of. */
static bool
may_skip(const LaneHead *head)
{
	return lane_hint_present(head->lane->id) && !limit_any(head->worker) && !head->noted;
}

/* Before the cursor passes jobs whose leases hold. */
static void
tell_revisit(const LaneHead *head)
{
	if (head->walk->scan.revisit_at != NO_TIME)
		(void) lane_hint_revisit(head->lane->id, head->walk->scan.revisit_at, false);
}

/*
 * Where others walk over the same jobs: a session that takes many tells from time to time how far it is, and
 * one that meets a job which another has goes on from there, instead of walking over all that the others
 * hold.
 */
static void
tell(const LaneHead *head)
{
	if (!may_skip(head))
		return;
	tell_revisit(head);
	lane_hint_settle(head->lane->id, &head->walk->refusals.window, &head->walk->tried, false);
	test_point("lane_told");
}

static void
pass_by(Heads *heads, LaneHead *head)
{
	LaneWalk   *walk = head->walk;

	if (!may_skip(head))
		return;
	(void) lane_hint_look(head->lane->id, &head->look, heads->now);
	if (lane_key_compare(&head->look.window.start, &walk->tried) <= 0)
		return;
	lane_scan_move(&walk->scan, head->look.window.start);
	walk->seen = 0;
}

void
heads_tried(Heads *heads, LaneHead *head, bool taken)
{
	LaneWalk   *walk = head->walk;
	bool		by_turns = heads->by_turns[head->queue->urgency];

	walk->tried = head->key;
	walk->any_passed_by = walk->any_passed_by || !taken;
	if (!taken)
	{
		pass_by(heads, head);
		return;
	}
	walk->taken++;
	heads->taken_since++;
	if (walk->taken % TELL_EVERY == 0)
		tell(head);
	if (by_turns)
		queue_out(head->queue);
	order_charge(head->queue->turns, head->worker->weight);
	if (by_turns)
		queue_in(head->queue);
	heads->has_urgency = false;
}

/* Under a node of a heap there is another one, or beside those under it. */
static LaneHead *
other_in(const pairingheap_node *node, const LaneHead *taken)
{
	LaneHead   *head;

	if (node == NULL)
		return NULL;
	head = pairingheap_container(LaneHead, node, (pairingheap_node *) node);
	if (head != taken)
		return head;
	return node->first_child == NULL ? NULL : pairingheap_container(LaneHead, node, node->first_child);
}

LaneHead *
heads_other(Heads *heads, const LaneHead *taken)
{
	for (int i = 0; i < URGENCIES; i++)
	{
		pairingheap_node *first = heads->queues[i].ph_root;
		QueueHeads *queue;
		LaneHead   *other;

		if (first == NULL)
			continue;
		queue = pairingheap_container(QueueHeads, node, first);
		other = other_in(queue->lanes.ph_root, taken);
		if (other == NULL && first->first_child != NULL)
			other = first_lane(pairingheap_container(QueueHeads, node, first->first_child));
		if (other != NULL)
			return other;
	}
	return NULL;
}

/* ---- what was found out ---- */

/* Of a lane without refusals. A job that was seen but not tried is the lane's first, as far as is known. */
static void
settle_hint(const LaneHead *head, bool tried)
{
	const LaneWalk *walk = head->walk;
	const LaneWindow *window = &walk->refusals.window;
	bool		any_tried = walk->taken > 0 || walk->any_passed_by;
	LaneKey		before;

	if (walk->over && !walk->any_passed_by)
		lane_hint_settle(head->lane->id, window, NULL, true);
	else if (!tried && walk->taken == 0 && any_tried)
		return;
	else if (head->more && (!any_tried || lane_key_compare(&head->key, &walk->tried) != 0))
	{
		before = (LaneKey)
		{
			.priority = head->key.priority,.id = head->key.id - 1
		};
		lane_hint_settle(head->lane->id, window, &before, false);
	}
	else if (any_tried)
		lane_hint_settle(head->lane->id, window, &walk->tried, false);
}

/*
 * Where lanes are many, the next job of one stands far behind the first: some of them are to be near. What
 * was far once is forgotten slowly, for jobs that come at random stand now close together, now apart.
 */
static void
learn_density(LaneHead *head)
{
	const LaneWalk *walk = head->walk;
	const LaneKey *start = &walk->scan.start;

	if (walk->over || head->key.priority != start->priority || start->id == PG_INT64_MIN)
		head->near = ALL_NEAR;
	else if (head->more)
		head->near = Max(Max(NEAR_IDS, head->near - head->near / 8), NEAR_JOBS * (head->key.id - start->id) / walk->seen);
}

/*
 * Of a lane without a hint only we know. What other sessions free there, or add, they tell as lost, and it is
 * found again from its beginning; jobs that are refused by a limit, too, or when it is time.
 */
static void
settle_unhinted(Heads *heads, LaneHead *head, bool tried)
{
	const LaneWalk *walk = head->walk;
	bool		refused = walk->refusals.any;
	bool		more = !refused && (!walk->over || walk->any_passed_by);
	LaneKey		key = walk->refusals.window.start;

	if (walk->taken > 0 || (tried && walk->any_passed_by) || (walk->over && walk->any_passed_by))
	{
		key = walk->tried;
		key.id += key.id < PG_INT64_MAX;
	}
	if (heads->by_hint == NULL)
		return;					/* all lanes are looked up again each time */
	look_without_hint(heads, head);
	place(head, more, more ? key : head->key);
	if (walk->scan.revisit_at != NO_TIME)
		head->retry_at = walk->scan.revisit_at;
	if (refused)
		head->retry_at = Min(head->retry_at, walk->refusals.retry_at);
	heads->retry_unhinted = Min(heads->retry_unhinted, head->retry_at);
}

static void
settle(Heads *heads, LaneHead *head, bool tried)
{
	LaneWalk   *walk = head->walk;

	learn_density(head);
	tell_revisit(head);
	if (!limit_settle(head->lane->id, &walk->refusals, head->more ? &walk->tried : NULL))
		settle_hint(head, tried);
	if (!lane_hint_present(head->lane->id))
		settle_unhinted(heads, head, tried);
	lane_scan_end(&walk->scan);
	head->walk = NULL;
}

void
heads_end(Heads *heads, bool tried)
{
	ListCell   *cell;

	foreach(cell, heads->altered)
		if (((LaneHead *) lfirst(cell))->walk != NULL)
			settle(heads, lfirst(cell), tried);
	foreach(cell, heads->altered)
	{
		LaneHead   *head = lfirst(cell);

		head->noted = false;
		(void) look(heads, head);
	}
	if (heads->snapshot != NULL)
		engine_snapshot_end(heads->snapshot);
	heads->doubted = false;
}
