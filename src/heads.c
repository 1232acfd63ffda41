/*
 * heads.c
 *		The lanes that a process takes jobs from, and which of them goes first; see heads.h.
 *
 * Order of events: first all hints are looked at, then the claim's snapshot is taken. What is published after the look is
 * allowed for when the hint is settled (lane_hint_settle()); what was published before it, the snapshot sees.
 */
#include "postgres.h"

#include "heads.h"
#include "wakeup.h"

LaneHead
head_of(const Lane *lane, Worker *worker)
{
	return (LaneHead)
	{
		.lane = lane,.worker = worker,.hint = lane_hint(lane->id, true),.turns = order_turns(lane->queue, worker->urgency),
			.urgency = worker->urgency
	};
}

/* By the queues' shares, if that counts; by priority and age. */
static bool
goes_before(const LaneHead *a, const LaneHead *b, bool by_turns)
{
	int			order = by_turns ? order_compare(a->turns, b->turns) : 0;

	return order != 0 ? order < 0 : lane_key_compare(&a->key, &b->key) < 0;
}

/* Whatever this transaction has noted of lanes is known to no hint yet. */
static void
look_at_own(LaneHead *head)
{
	LaneKey		first;

	if (!wakeup_touched(head->lane->id, &first))
		return;
	head->more = true;
	if (lane_key_compare(&first, &head->key) < 0)
		head->key = first;
}

static void
count_head(Heads *heads, const LaneHead *head)
{
	Urgency		urgency = head->urgency;
	int		   *weight = &heads->weight[urgency];

	if (heads->with_more[urgency]++ == 0)
		*weight = head->worker->weight;
	else if (*weight != head->worker->weight)
		*weight = -1;
}

/* Anew when one of them has no more: the others may all have the same weight. */
static void
count_heads(Heads *heads)
{
	memset(heads->with_more, 0, sizeof(heads->with_more));
	for (int i = 0; i < heads->count; i++)
		if (heads->all[i].more)
			count_head(heads, &heads->all[i]);
}

static bool
any_more(const Heads *heads)
{
	bool		any = false;

	for (int i = 0; i < URGENCIES; i++)
		any = any || heads->with_more[i] > 0;
	return any;
}

bool
heads_begin(Heads *heads, LiveTable *table, TimestampTz now)
{
	bool		own = wakeup_touched_any();

	heads->table = table;
	heads->now = now;
	heads->snapshot = NULL;
	heads->open = NIL;
	heads->has_urgency = false;
	memset(heads->with_more, 0, sizeof(heads->with_more));
	memset(heads->first, 0, sizeof(heads->first));
	for (int i = 0; i < heads->count; i++)
	{
		LaneHead   *head = &heads->all[i];
		LaneHead  **first = &heads->first[head->urgency];

		head->walk = NULL;
		head->more = lane_hint_look(head->hint, &head->look, now);
		head->key = head->look.window.start;
		if (own)
			look_at_own(head);
		if (!head->more)
			continue;
		count_head(heads, head);
		if (*first == NULL || goes_before(head, *first, heads->by_turns))
			*first = head;
	}
	return any_more(heads);
}

static void
no_more(Heads *heads, LaneHead *head)
{
	Urgency		urgency = head->urgency;

	head->more = false;
	heads->first[urgency] = NULL;
	heads->with_more[urgency]--;
	if (heads->weight[urgency] < 0)
		count_heads(heads);
}

/* ---- which one goes first ---- */

static LaneHead *
first_of_urgency(Heads *heads)
{
	bool		by_weight = heads->weight[heads->urgency] < 0;
	bool		by_turns = heads->by_turns || by_weight;
	LaneHead   *first = heads->first[heads->urgency];

	if (first != NULL && !by_weight)
		return first;
	first = NULL;
	for (int i = 0; i < heads->count; i++)
	{
		LaneHead   *head = &heads->all[i];

		if (head->more && head->urgency == heads->urgency && (first == NULL || goes_before(head, first, by_turns)))
			first = head;
	}
	heads->first[heads->urgency] = first;
	return first;
}

static void
choose_urgency(Heads *heads, bool look)
{
	bool		has_work[URGENCIES];

	for (int i = 0; i < URGENCIES; i++)
		has_work[i] = heads->with_more[i] > 0;
	if (!heads->has_urgency && !look)
		heads->urgency = order_urgency(has_work, heads->now);
	else if (!heads->has_urgency || !has_work[heads->urgency])
		for (heads->urgency = 0; !has_work[heads->urgency];)
			heads->urgency++;
	heads->has_urgency = true;
}

void
heads_advance(Heads *heads, LaneHead *head)
{
	LaneKey		before = head->key;

	if (lane_scan_next(&head->walk->scan, &head->walk->job))
	{
		head->key = job_key(&head->walk->job);
		if (lane_key_compare(&head->key, &before) != 0)
			heads->first[head->urgency] = NULL;
	}
	else
	{
		head->walk->over = true;
		no_more(heads, head);
	}
}

void
heads_leave(Heads *heads, LaneHead *head)
{
	no_more(heads, head);
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
	heads->open = lappend(heads->open, head);
	lane_scan_begin(&head->walk->scan, heads->table, head->lane->id, head->key, heads->snapshot, heads->now);
	heads_advance(heads, head);
}

LaneHead *
heads_first(Heads *heads, bool look)
{
	LaneHead   *head;

	while (any_more(heads))
	{
		choose_urgency(heads, look);
		head = first_of_urgency(heads);
		if (head->walk != NULL)
			return head;
		open_lane(heads, head);
	}
	return NULL;
}

void
heads_tried(Heads *heads, LaneHead *head, bool taken)
{
	LaneWalk   *walk = head->walk;

	walk->tried = head->key;
	walk->any_tried = true;
	walk->any_taken = walk->any_taken || taken;
	walk->any_passed_by = walk->any_passed_by || !taken;
	if (!taken)
		return;
	order_charge(head->turns, head->worker->weight);
	heads->first[head->urgency] = NULL;
	heads->has_urgency = false;
}

/* ---- what was found out ---- */

/* Of a lane without refusals. A job that was seen but not tried is the lane's first, as far as anybody knows. */
static void
settle_hint(LaneHead *head, bool tried)
{
	LaneWalk   *walk = head->walk;
	LaneWindow *window = &walk->refusals.window;
	LaneKey		before;

	if (walk->over && !walk->any_passed_by)
		lane_hint_settle(head->hint, window, NULL, true);
	else if (!tried && !walk->any_taken && walk->any_tried)
		return;
	else if (head->more && (!walk->any_tried || lane_key_compare(&head->key, &walk->tried) != 0))
	{
		before = (LaneKey)
		{
			.priority = head->key.priority,.id = head->key.id - 1
		};
		lane_hint_settle(head->hint, window, &before, false);
	}
	else if (walk->any_tried)
		lane_hint_settle(head->hint, window, &walk->tried, false);
}

void
heads_end(Heads *heads, bool tried)
{
	ListCell   *cell;

	foreach(cell, heads->open)
	{
		LaneHead   *head = lfirst(cell);
		LaneWalk   *walk = head->walk;

		if (!limit_settle(head->hint, &walk->refusals, head->more ? &walk->tried : NULL))
			settle_hint(head, tried);
		if (walk->scan.revisit_at != NO_TIME)
			lane_hint_revisit(head->hint, walk->scan.revisit_at);
		lane_scan_end(&walk->scan);
		head->walk = NULL;
	}
	if (heads->snapshot != NULL)
		engine_snapshot_end(heads->snapshot);
}
