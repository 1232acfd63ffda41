/*
 * heads.c
 *		The lanes that a process takes jobs from, and which of them goes first; see heads.h.
 *
 * Lanes with work are in heaps: in one for each queue and urgency, and these in one for each urgency. Where a lane stands
 * follows from its hint, but during a claim, for those which the claim has opened, or which have jobs of its own transaction.
 *
 * Order of events: first all hints are looked at, then the claim's snapshot is taken. What is published after the look is
 * allowed for when the hint is settled (lane_hint_settle()); what was published before it, the snapshot sees.
 */
#include "postgres.h"

#include "heads.h"
#include "settings.h"
#include "test_point.h"
#include "wakeup.h"

#define NEAR_JOBS 4
#define TELL_EVERY 8			/* jobs taken */

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
heads_create(Heads *heads, int lanes, bool in_turn, uint32 set)
{
	int			most = Max(lanes, 1);

	*heads = (Heads)
	{
		.all = palloc0(most * sizeof(LaneHead)),.every_queue = palloc0(most * sizeof(QueueHeads)),
			.weights = palloc0(most * sizeof(HeadsWeight)),.in_turn = in_turn,.set = set,.doubted = true,
			.revisit_unhinted = DT_NOEND
	};
	for (int i = 0; i < URGENCIES; i++)
		heads->queues[i].ph_compare = compare_queues;
}

static QueueHeads *
queue_of(Heads *heads, QueueTurns *turns, Urgency urgency)
{
	QueueHeads *queue;

	for (int i = heads->queue_count - 1; i >= Max(heads->queue_count - URGENCIES, 0); i--)
		if (heads->every_queue[i].turns == turns)
			return &heads->every_queue[i];
	queue = &heads->every_queue[heads->queue_count++];
	queue->turns = turns;
	queue->urgency = urgency;
	queue->lanes.ph_compare = compare_lanes;
	queue->heads = heads;
	return queue;
}

static HeadsWeight *
weight_of(Heads *heads, const Worker *worker)
{
	HeadsWeight *weight;

	for (int i = 0; i < heads->weight_count; i++)
	{
		weight = &heads->weights[i];
		if (weight->urgency == worker->urgency && weight->weight == worker->weight)
			return weight;
	}
	weight = &heads->weights[heads->weight_count++];
	weight->urgency = worker->urgency;
	weight->weight = worker->weight;
	return weight;
}

void
heads_add(Heads *heads, const Lane *lane, Worker *worker, struct Task *task)
{
	LaneHead   *head = &heads->all[heads->count++];

	head->lane = lane;
	head->worker = worker;
	head->task = task;
	head->hint = lane_hint(lane->id, true);
	head->queue = queue_of(heads, order_turns(lane->queue, worker->urgency), worker->urgency);
	head->weight = weight_of(heads, worker);
}

void
heads_complete(Heads *heads)
{
	for (int i = 0; i < heads->count; i++)
		heads->all[i].near = (int64) NEAR_IDS * heads->count;	/* as if jobs came to all lanes alike */
	if (heads->count == 0)
		return;					/* there may be no shared memory */
	for (int i = 0; i < heads->count; i++)
		if (heads->all[i].hint == NULL)
			return;
	heads->by_hint = palloc0(queue_jobs_max_lanes * sizeof(LaneHead *));
	for (int i = 0; i < heads->count; i++)
		heads->by_hint[lane_hint_index(heads->all[i].hint)] = &heads->all[i];
}

/* ---- what hints tell ---- */

static void
look(Heads *heads, LaneHead *head)
{
	bool		ready = lane_hint_look(head->hint, &head->look, heads->now);

	if (head->look.revisit_at != NO_TIME)
		heads->next_revisit = Min(heads->next_revisit, head->look.revisit_at);
	place(head, ready, head->look.window.start);
}

/* What was counted as seen before this is seen by it. */
static void
look_at_all(Heads *heads)
{
	heads->next_revisit = DT_NOEND;
	for (int i = 0; i < heads->count; i++)
	{
		heads->all[i].walk = NULL;	/* of a claim that an error has ended */
		heads->all[i].noted = false;
		look(heads, &heads->all[i]);
	}
}

static void
look_at_changes(Heads *heads, TimestampTz now)
{
	bool		all = heads->doubted || heads->by_hint == NULL || heads->next_revisit <= now;
	int			index;

	heads->now = now;
	while (heads->by_hint != NULL)
	{
		ChangeResult result = lane_hint_next_change(&heads->seen, &index);

		if (result == CHANGES_END)
			break;
		else if (result == CHANGES_LOST)
			all = true;
		else if (!all && heads->by_hint[index] != NULL)
			look(heads, heads->by_hint[index]);
	}
	if (all)
		look_at_all(heads);
	heads->doubted = false;
}

TimestampTz
heads_next_revisit(Heads *heads)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		is_now = heads->next_revisit <= now;

	look_at_changes(heads, now);	/* which forgets a time that has come */
	return is_now ? now : Min(heads->next_revisit, heads->revisit_unhinted);
}

static LaneHead *
head_of_lane(Heads *heads, int32 lane)
{
	LaneHint   *hint = lane_hint(lane, false);

	if (heads->by_hint != NULL && hint != NULL)
		return heads->by_hint[lane_hint_index(hint)];
	for (int i = 0; i < heads->count; i++)
		if (heads->all[i].lane->id == lane)
			return &heads->all[i];
	return NULL;
}

/* What this transaction has noted is known to no hint yet. */
static void
look_at_own(Heads *heads)
{
	int32		lane;
	LaneKey		key;

	for (int i = 0; wakeup_next_touched(&i, heads->now, &lane, &key);)
	{
		LaneHead   *head = head_of_lane(heads, lane);

		if (head == NULL)
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
	heads->revisit_unhinted = DT_NOEND;
	heads->has_urgency = false;
	look_at_own(heads);
}

/* ---- which one goes first ---- */

/* Queues have shares if workers of that urgency which have jobs have different weights. */
static bool
weights_differ(const Heads *heads, Urgency urgency)
{
	int			different = 0;

	for (int i = 0; i < heads->weight_count; i++)
		different += heads->weights[i].urgency == urgency && heads->weights[i].with_more > 0;
	return different > 1;
}

static QueueHeads *
first_queue(Heads *heads, Urgency urgency)
{
	pairingheap *queues = &heads->queues[urgency];
	bool		by_turns = heads->in_turn || weights_differ(heads, urgency);

	if (by_turns != heads->by_turns[urgency])
	{
		heads->by_turns[urgency] = by_turns;
		queues->ph_root = NULL;
		for (int i = 0; i < heads->queue_count; i++)
			if (heads->every_queue[i].urgency == urgency)
				queue_in(&heads->every_queue[i]);
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
	return head->hint != NULL && !limit_any(head->worker) && !head->noted;
}

/* Before the cursor passes jobs whose leases hold. */
static void
tell_revisit(Heads *heads, const LaneHead *head)
{
	TimestampTz at = head->walk->scan.revisit_at;

	if (at == NO_TIME)
		return;
	lane_hint_revisit(head->hint, at);
	if (head->hint == NULL)
		heads->revisit_unhinted = Min(heads->revisit_unhinted, at);
}

/*
 * Where others walk over the same jobs: who takes many tells from time to time how far it is, and who meets a job that somebody
 * has goes on from there, instead of walking over all that the others hold.
 */
static void
tell(Heads *heads, const LaneHead *head)
{
	if (!may_skip(head))
		return;
	tell_revisit(heads, head);
	lane_hint_settle(head->hint, &head->walk->refusals.window, &head->walk->tried, false);
	test_point("lane_told");
}

static void
pass_by(Heads *heads, LaneHead *head)
{
	LaneWalk   *walk = head->walk;

	if (!may_skip(head))
		return;
	(void) lane_hint_look(head->hint, &head->look, heads->now);
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
	if (walk->taken % TELL_EVERY == 0)
		tell(heads, head);
	if (by_turns)
		queue_out(head->queue);
	order_charge(head->queue->turns, head->worker->weight);
	if (by_turns)
		queue_in(head->queue);
	heads->has_urgency = false;
}

LaneHead *
heads_other(Heads *heads, const LaneHead *taken)
{
	int			others = -taken->more;

	for (int i = 0; i < heads->weight_count; i++)
		others += heads->weights[i].with_more;
	for (int i = 0; others > 0 && i < heads->count; i++)
		if (heads->all[i].more && &heads->all[i] != taken)
			return &heads->all[i];
	return NULL;
}

/* ---- what was found out ---- */

/* Of a lane without refusals. A job that was seen but not tried is the lane's first, as far as anybody knows. */
static void
settle_hint(const LaneHead *head, bool tried)
{
	const LaneWalk *walk = head->walk;
	const LaneWindow *window = &walk->refusals.window;
	bool		any_tried = walk->taken > 0 || walk->any_passed_by;
	LaneKey		before;

	if (walk->over && !walk->any_passed_by)
		lane_hint_settle(head->hint, window, NULL, true);
	else if (!tried && walk->taken == 0 && any_tried)
		return;
	else if (head->more && (!any_tried || lane_key_compare(&head->key, &walk->tried) != 0))
	{
		before = (LaneKey)
		{
			.priority = head->key.priority,.id = head->key.id - 1
		};
		lane_hint_settle(head->hint, window, &before, false);
	}
	else if (any_tried)
		lane_hint_settle(head->hint, window, &walk->tried, false);
}

/*
 * Where lanes are many, the next job of one stands far behind the first: some of them are to be near. What was far once is
 * forgotten slowly, for jobs that come at random stand now close together, now apart.
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

static void
settle(Heads *heads, LaneHead *head, bool tried)
{
	LaneWalk   *walk = head->walk;

	learn_density(head);
	tell_revisit(heads, head);
	if (!limit_settle(head->hint, &walk->refusals, head->more ? &walk->tried : NULL))
		settle_hint(head, tried);
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
		look(heads, head);
	}
	if (heads->snapshot != NULL)
		engine_snapshot_end(heads->snapshot);
	heads->doubted = false;
}
