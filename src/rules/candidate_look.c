/*
 * candidate_look.c
 *		What hints tell; see candidate_look.h.
 *
 * Order of events: first all hints are looked at, then the claim's snapshot is taken. What is published after
 * the look is allowed for when the hint is settled (lane_hint_settle()); what was published before it, the
 * snapshot sees. A hint that we miss has given way before, and if its lane had jobs, that was counted as lost
 * before: so hints are looked at first, then what was lost, then the index.
 */
#include "postgres.h"

#include "access/xact.h"
#include "candidate_look.h"
#include "live_scan.h"
#include "utils/hsearch.h"

#define DISCOVER_AT_ONCE 256	/* lanes, if there is no room for the hints of all */
#define DISCOVER_EVERY 64		/* jobs taken, as long as there are such lanes and others have jobs */

bool
candidate_look(Candidates *candidates, Candidate *candidate)
{
	if (!lane_hint_look(candidate->lane->id, &candidate->look, candidates->now))
		return false;
	candidate->retry_at = DT_NOEND;
	if (candidate->look.revisit_at != NO_TIME)
		candidates->next_revisit = Min(candidates->next_revisit, candidate->look.revisit_at);
	candidate_place(candidate, candidate->look.ready, candidate->look.window.start);
	return true;
}

void
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
 * Adds lanes that are new to this process and may have jobs. The look sees everything that was counted as
 * seen before it.
 */
static void
look_at_all(Candidates *candidates)
{
	HASH_SEQ_STATUS status;
	Candidate  *candidate;
	int32		lane;

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

		if (lane_hint_present(candidate->lane->id) && candidate_look(candidates, candidate))
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
found_unhinted(int32 lane, void *argument)
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
 * for as many at first as there are hints, and then for some at a time, when no other job is known or some
 * were taken.
 */
static void
discover(Candidates *candidates)
{
	uint64		lost = lane_hints_lost();
	bool		first = candidates->lost == 0 && candidates->position == 0;

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

void
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
