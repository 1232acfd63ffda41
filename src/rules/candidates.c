/*
 * candidates.c
 *		A claim's choice among the lanes, and what it has found out of them; see candidates.h.
 */
#include "postgres.h"

#include "access/xact.h"
#include "candidates.h"
#include "catalog.h"
#include "live_scan.h"
#include "miscadmin.h"
#include "test_point.h"
#include "utils/hsearch.h"
#include "wakeup.h"

/* ---- what hints tell ---- */

/*
 * Order of events: first all hints are looked at, then the claim's snapshot is taken. What is published after
 * the look is allowed for when the hint is settled (lane_hint_settle()); what was published before it, the
 * snapshot sees. A hint that we miss has given way before, and if its lane had jobs, that was counted as lost
 * before: so hints are looked at first, then what was lost, then the index.
 */

#define DISCOVER_AT_ONCE 256	/* lanes, if there is no room for the hints of all */
#define DISCOVER_EVERY 64		/* jobs taken, as long as there are such lanes and others have jobs */

/* Looks at the hint of one lane. Returns false, and learns nothing, if the lane has no hint. */
static bool
candidate_look(Candidates *candidates, Candidate *candidate)
{
	if (!lane_hint_look(candidate->id, &candidate->look, candidates->now))
		return false;
	candidate->retry_at = DT_NOEND;
	if (candidate->look.revisit_at != NO_TIME)
		candidates->next_revisit = Min(candidates->next_revisit, candidate->look.revisit_at);
	candidate_place(candidate, candidate->look.ready, candidate->look.window.start);
	return true;
}

/* Has the next claim walk over a lane without a hint from its beginning. */
static void
candidate_look_without_hint(Candidates *candidates, Candidate *candidate)
{
	MemoryContext old;

	candidate->look = (LaneLook)
	{
		.window = {lowest_position, 0}, .ready = true, .revisit_at = NO_TIME
	};
	candidate->retry_at = DT_NOEND;
	candidate_place(candidate, true, lowest_position);
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
	int64		lane = lane_hint_lane(index);
	Candidate  *candidate = candidates->by_hint[index];

	if (lane == 0)
		return NULL;
	if (candidate == NULL || candidate->id != lane)
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
 * Adds lanes that are new to this process and may have jobs. The look sees everything that was counted as
 * seen before it.
 */
static void
look_at_all(Candidates *candidates)
{
	HASH_SEQ_STATUS status;
	Candidate  *candidate;
	int64		lane;

	candidates->next_revisit = DT_NOEND;
	hash_seq_init(&status, candidates->lanes);
	while ((candidate = hash_seq_search(&status)) != NULL)
	{
		candidate->walk = NULL; /* of a claim that an error has ended */
		candidate->noted = false;
		if (candidate->worker != NULL && !candidate_look(candidates, candidate) && candidate->unhinted)
			candidate_look_without_hint(candidates, candidate);
	}
	for (int i = 0; lane_hint_next(&i, &lane); i++)
	{
		LaneLook	seen;

		if (known_candidate(candidates, lane) != NULL || !lane_hint_look(lane, &seen, candidates->now) ||
			(!seen.ready && seen.revisit_at == NO_TIME))
			continue;
		candidate = candidate_of(candidates, lane);
		if (candidate != NULL && candidate->worker != NULL)
			(void) candidate_look(candidates, candidate);
	}
}

/* Looks again at lanes without a hint, some of which may have one by now. */
static void
retry_unhinted(Candidates *candidates)
{
	ListCell   *cell;

	candidates->retry_unhinted = DT_NOEND;
	foreach(cell, candidates->unhinted)
	{
		Candidate  *candidate = lfirst(cell);

		if (lane_hint_present(candidate->id) && candidate_look(candidates, candidate))
		{
			candidate->unhinted = false;
			candidates->unhinted = foreach_delete_current(candidates->unhinted, cell);
			continue;
		}
		if (candidate->retry_at <= candidates->now)
			candidate_look_without_hint(candidates, candidate);
		candidates->retry_unhinted = Min(candidates->retry_unhinted, candidate->retry_at);
	}
}

/* Notes a lane that the index shows to have jobs, and that has no hint. */
static void
found_unhinted(int64 lane, void *argument)
{
	Candidates *candidates = argument;
	Candidate  *candidate = candidate_of_unhinted(candidates, lane);

	candidates->missing = true;
	if (candidate != NULL && candidate->worker != NULL)
		candidate_look_without_hint(candidates, candidate);
}

/*
 * The changes of a busy lane stand one behind the other, as many as there are sessions at work. One look,
 * after the last of them was read, sees them all, and takes the mutex of its hint once.
 */
static bool
look_at_hint_changes(Candidates *candidates, bool make)
{
	bool		all = false;
	bool		unknown = false;
	Candidate  *changed = NULL;
	int			index;

	while (candidates->by_hint != NULL && !unknown)
	{
		uint64		before = candidates->seen;
		ChangeResult result = lane_hint_next_change(&candidates->seen, &index);
		Candidate  *candidate = NULL;

		if (result == CHANGES_END)
			break;
		else if (result == CHANGES_LOST)
			all = true;
		else if (!all)
			candidate = candidate_of_hint(candidates, index, make, &unknown);
		if (unknown)
			candidates->seen = before;
		if (candidate == NULL || candidate == changed || candidate->look.changes >= candidates->seen)
			continue;			/* most changes are our own, and our latest look was after them */
		if (changed != NULL)
			(void) candidate_look(candidates, changed);
		changed = candidate;
	}
	if (changed != NULL && !all)
		(void) candidate_look(candidates, changed);
	return !all && !unknown;
}

/* Whether any lane has jobs left. */
static bool
any_has_more(const Candidates *candidates)
{
	for (int i = 0; i < URGENCIES; i++)
		if (!pairingheap_is_empty(&candidates->queues[i]))
			return true;
	return false;
}

/*
 * Looks in the index for lanes whose hints are lost. It looks for all where there are no hints at all; else
 * for as many at first as there are hints, if these have been enough since the server started; and then for
 * some at a time, when no other job is known or some were taken.
 */
static void
discover(Candidates *candidates)
{
	uint64		lost = lane_hints_lost();
	bool		first = candidates->lost == 0 && candidates->position == 0 && !lane_hints_full();

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
		int			most = first ? Max(lane_hints_size(), DISCOVER_AT_ONCE) : DISCOVER_AT_ONCE;

		if (candidates->by_hint == NULL)
			most = PG_INT32_MAX;
		else if (!first && any_has_more(candidates) && candidates->taken_since < DISCOVER_EVERY)
			return;
		first = false;
		candidates->taken_since = 0;
		if (candidates->position == 0)
		{
			candidates->losing = lost;
			candidates->missing = false;
		}
		if (lane_hints_discover(&candidates->position, most, found_unhinted, candidates))
		{
			candidates->lost = candidates->losing;
			if (!candidates->missing)
				lane_hints_tell_complete(candidates->lost);
		}
		if (candidates->by_hint != NULL && !look_at_hint_changes(candidates, true))
			look_at_all(candidates);
	} while (candidates->by_hint != NULL && candidates->lost != lost);
}

/* Looks at all that has changed since the last look. Needs a transaction. */
static void
candidates_look(Candidates *candidates, TimestampTz now)
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
	if (candidates->doubted || candidates->next_revisit <= now || candidates->retry_unhinted <= now ||
		candidates->lost != lane_hints_lost())
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
	bool		is_now = candidates->next_revisit <= now || candidates->retry_unhinted <= now;

	if (candidates->admit == NULL || candidates->by_hint == NULL)
		return DT_NOEND;		/* not made yet; or without hints, by which alone that is known */
	if (!IsTransactionState())
		is_now = !look_outside_transaction(candidates, now);
	else
		candidates_look(candidates, now);	/* which forgets a time that has come */
	return is_now ? now : Min(candidates->next_revisit, candidates->retry_unhinted);
}

#define NEAR_JOBS 4
#define TELL_EVERY 8			/* jobs taken */
#define MOST_ORDERED 16			/* lanes that a claim opens to find the oldest job of values that are new */

/* Looks at the lanes that this transaction has noted, which no hint knows yet. */
static void
look_at_own(Candidates *candidates)
{
	int64		lane;
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
			candidate_place(candidate, true,
							lane_position_compare(&key, &candidate->look.window.start) < 0
								? key
								: candidate->look.window.start);
	}
}

/* Begins a walk of the candidates. */
static void
begin_walk(Candidates *candidates, LiveTable *table, TimestampTz now)
{
	candidates_look(candidates, now);
	candidates->doubted = true; /* until end_walk() */
	candidates->table = table;
	candidates->snapshot = NULL;
	candidates->altered = NIL;
	candidates->has_urgency = false;
	candidates->opened = 0;
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

/* Returns the queue whose turn it is. */
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

/*
 * Leaves the lane, with which this walk is done. A walk may come to any number of lanes, and open scans are
 * large.
 */
static void
leave_lane(Candidate *candidate)
{
	lane_scan_end(&candidate->walk->scan);
	candidate_place(candidate, false, candidate->key);
}

/* To the next job of the candidate's lane, if there is one. */
static void
read_on(Candidate *candidate)
{
	LaneWalk   *walk = candidate->walk;

	walk->over = !lane_scan_next(&walk->scan, &walk->job);
	if (walk->over)
	{
		leave_lane(candidate);
		return;
	}
	walk->seen++;
	candidate_place(candidate, true, job_position(&walk->job));
}

/*
 * Ends the scan of a lane from which a job was taken, and whose value has its next one in a later turn: of
 * thousands of values a claim may not come to the second jobs, and open scans are large.
 */
static void
put_off(Candidate *candidate)
{
	LaneWalk   *walk = candidate->walk;
	LanePosition next = walk->tried;

	next.id += next.id < PG_INT64_MAX;
	lane_scan_end(&walk->scan);
	walk->put_off = true;
	candidate_place(candidate, true, next);
}

/* Reads on in a lane whose next job was put off. */
static void
take_up(Candidates *candidates, Candidate *candidate)
{
	LaneWalk   *walk = candidate->walk;
	TimestampTz revisit_at = walk->scan.revisit_at;

	lane_scan_begin(&walk->scan, candidates->table, candidate->id, candidate->key, candidates->snapshot,
					candidates->now);
	walk->scan.near = candidate->near;
	walk->scan.revisit_at = revisit_at;
	walk->put_off = false;
	walk->seen = 0;				/* since scan.start */
	read_on(candidate);
}

/* Begins to read the lane's jobs. */
static void
open_lane(Candidates *candidates, Candidate *candidate)
{
	if (candidates->snapshot == NULL)
		candidates->snapshot = engine_snapshot();
	candidate->walk = palloc0(sizeof(LaneWalk));
	candidate->walk->refusals.window = (LaneWindow)
	{
		.start = candidate->key, .published = candidate->look.window.published
	};
	candidates->altered = lappend(candidates->altered, candidate);
	lane_scan_begin(&candidate->walk->scan, candidates->table, candidate->id, candidate->key,
					candidates->snapshot, candidates->now);
	if (candidate->near < 0)
		/* as if jobs came to all lanes alike */
		candidate->near = (int64) NEAR_IDS * hash_get_num_entries(candidates->lanes);
	candidate->walk->scan.near = candidate->near;
	read_on(candidate);
	if (candidates->opened++ < MOST_ORDERED && candidate->more)
		candidate_order_newcomer(candidate);
}

/* Looks at the first job of urgencies that are about to be passed over for the first time. */
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
			candidate = queue_first_lane(first_queue(candidates, i));
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

/* The candidate whose walk has the next job, or NULL if there is none. */
static Candidate *
first_candidate(Candidates *candidates, bool look)
{
	while (choose_urgency(candidates, look))
	{
		Candidate  *candidate = queue_first_lane(first_queue(candidates, candidates->urgency));

		if (!candidate_refresh_turn(candidate))
			continue;
		if (candidate->walk != NULL && !candidate->walk->put_off)
			return candidate;
		if (candidate->walk != NULL)
			take_up(candidates, candidate);
		else
			open_lane(candidates, candidate);

		/* Whose turn it is does not depend on where the job stands, but among lanes of one queue. */
		if (candidates->in_turn && candidate->more && queue_first_lane(candidate->queue) == candidate)
			return candidate;
	}
	return NULL;
}

/* No limits, which count on the order of a key, and no jobs that the hint does not know of. */
static bool
may_skip(const Candidate *candidate)
{
	return lane_hint_present(candidate->id) && !limit_any(candidate->worker) && !candidate->noted;
}

/* Before the cursor passes jobs whose leases hold. */
static void
tell_revisit(const Candidate *candidate)
{
	if (candidate->walk->scan.revisit_at != NO_TIME)
		(void) lane_hint_revisit(candidate->id, candidate->walk->scan.revisit_at, false);
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
	lane_hint_settle(candidate->id, &candidate->walk->refusals.window, &candidate->walk->tried, false);
	test_point("lane_told");
}

/* Goes on at the hint, if it has moved on behind the job that was tried. */
static void
pass_by(Candidates *candidates, Candidate *candidate)
{
	LaneWalk   *walk = candidate->walk;

	if (!may_skip(candidate))
		return;
	(void) lane_hint_look(candidate->id, &candidate->look, candidates->now);
	if (lane_position_compare(&candidate->look.window.start, &walk->tried) <= 0)
		return;
	lane_scan_move(&walk->scan, candidate->look.window.start);
	walk->seen = 0;
}

/* Notes that a job was tried, and taken or not. */
static void
note_tried(Candidates *candidates, Candidate *candidate, bool taken)
{
	LaneWalk   *walk = candidate->walk;

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
	candidate_charge(candidate);
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

/* Another candidate that has work, as far as is known, or NULL. */
static Candidate *
other_candidate(Candidates *candidates, const Candidate *taken)
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
		if (other == NULL)
			other = candidate_other_value(taken);
		if (other == NULL && first->first_child != NULL)
			other = queue_first_lane(pairingheap_container(CandidateQueue, node, first->first_child));
		if (other != NULL)
			return other;
	}
	return NULL;
}

/* ---- what was found out ---- */

/*
 * Settles the hint of a lane without refusals. A job that was seen but not tried is the lane's first, as
 * far as is known.
 */
static void
settle_hint(const Candidate *candidate, bool tried)
{
	const LaneWalk *walk = candidate->walk;
	const LaneWindow *window = &walk->refusals.window;
	bool		any_tried = walk->taken > 0 || walk->any_passed_by;
	LanePosition before;

	if (walk->over && !walk->any_passed_by)
		lane_hint_settle(candidate->id, window, NULL, true);
	else if (!tried && walk->taken == 0 && any_tried)
		return;
	else if (candidate->more && (!any_tried || lane_position_compare(&candidate->key, &walk->tried) != 0))
	{
		before = (LanePosition)
		{
			.priority = candidate->key.priority, .id = candidate->key.id - 1
		};
		lane_hint_settle(candidate->id, window, &before, false);
	}
	else if (any_tried)
		lane_hint_settle(candidate->id, window, &walk->tried, false);
}

/*
 * Learns how far apart a lane's jobs stand. Where lanes are many, the next job of a lane stands far behind
 * the first, and some of them must count as near. An old distance is forgotten slowly: jobs that come at
 * random stand now close together, now apart.
 *
 * If always NEAR_IDS were near, a job in one of 1,000 lanes would take 6 % more instructions. If it were
 * NEAR_IDS for each lane that is known, one in a lane of 4,000 jobs side by side, with 999 other lanes,
 * would take 34 % more (callgrind).
 */
static void
learn_density(Candidate *candidate)
{
	const LaneWalk *walk = candidate->walk;
	const LanePosition *start = &walk->scan.start;

	if (walk->over || candidate->key.priority != start->priority || start->id == PG_INT64_MIN)
		candidate->near = ALL_NEAR;
	else if (candidate->more)
		candidate->near = Max(Max(NEAR_IDS, candidate->near - candidate->near / 8),
							  NEAR_JOBS * (candidate->key.id - start->id) / walk->seen);
}

/*
 * Settles a lane without a hint, of which only this process knows. Other sessions report jobs that they
 * free or add there as lost, and the lane is found again from its beginning. So are jobs that a limit
 * refuses, or when it is time.
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
	candidate_look_without_hint(candidates, candidate);
	candidate_place(candidate, more, more ? key : candidate->key);
	if (walk->scan.revisit_at != NO_TIME)
		candidate->retry_at = walk->scan.revisit_at;
	if (refused)
		candidate->retry_at = Min(candidate->retry_at, walk->refusals.retry_at);
	candidates->retry_unhinted = Min(candidates->retry_unhinted, candidate->retry_at);
}

/* Settles the lane's hint at the end of the walk. */
static void
settle(Candidates *candidates, Candidate *candidate, bool tried)
{
	LaneWalk   *walk = candidate->walk;

	learn_density(candidate);
	tell_revisit(candidate);
	test_point("lane_settles");
	/* other processes may forget the time in the hint once it has come, and wake no session */
	if (walk->scan.revisit_at != NO_TIME)
		candidates->next_revisit = Min(candidates->next_revisit, walk->scan.revisit_at);
	if (!limit_settle(candidate->id, &walk->refusals, candidate->more ? &walk->tried : NULL))
		settle_hint(candidate, tried);
	if (!candidate_look(candidates, candidate))
		settle_unhinted(candidates, candidate, tried);
	lane_scan_end(&walk->scan);
	pfree(walk);
	candidate->walk = NULL;
}

/* Ends the walk: hints learn what it has found. */
static void
end_walk(Candidates *candidates, bool tried)
{
	ListCell   *cell;

	foreach(cell, candidates->altered)
	{
		Candidate  *candidate = lfirst(cell);

		candidate->noted = false;
		if (candidate->walk != NULL)
			settle(candidates, candidate, tried);
		else
			(void) candidate_look(candidates, candidate);
	}
	if (candidates->snapshot != NULL)
		engine_snapshot_end(candidates->snapshot);
	candidates->doubted = false;
}

/* ---- the walk ---- */

/* Finds what is left of the candidates, for the caller to call help. */
static void
find_rest(Candidates *candidates, Candidate *taken, ClaimWalk *walk)
{
	read_on(taken);
	walk->rest[0] = taken->more ? taken : NULL;
	walk->rest[1] = other_candidate(candidates, taken);
}

int
candidates_walk(Candidates *candidates, LiveTable *table, TimestampTz now, ClaimWalk *walk)
{
	Candidate  *candidate;
	int			taken = 0;

	begin_walk(candidates, table, now);
	while (!walk->enough && (candidate = first_candidate(candidates, walk->look)) != NULL)
	{
		Tried		tried;

		CHECK_FOR_INTERRUPTS();
		tried = walk->attempt(walk, candidate);
		if (walk->enough && tried != TRIED_TAKEN)
			break;
		taken += tried == TRIED_TAKEN;
		if (!walk->look)
			note_tried(candidates, candidate, tried == TRIED_TAKEN);
		if (tried == TRIED_LANE_PASSED_BY)
			leave_lane(candidate);
		else if (!walk->enough && tried == TRIED_TAKEN && candidates->opened > MOST_ORDERED &&
				 candidate->fair != NULL && candidate->fair->first != candidate)
			put_off(candidate);
		else if (!walk->enough)
			read_on(candidate);
		else if (walk->reads_on)
			find_rest(candidates, candidate, walk);
	}
	end_walk(candidates, walk->tells_tried);
	return taken;
}
