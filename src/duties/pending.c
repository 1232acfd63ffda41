/*
 * pending.c
 *		Batches and jobs that the scheduler has yet to look at; see pending.h.
 */
#include "postgres.h"

#include "pending.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define MOST_PENDING 65536
#define ROOM_OF_EACH 16			/* for a role, whatever the others have pending */
#define LOW 1024
#define MOST_IDLE_ROLES 1000	/* idle roles whose time is remembered */
#define LONGEST_DELAY (5 * USECS_PER_SEC)

typedef struct RoleTurn
{
	Oid			role;			/* hash key */
	int64		time;			/* microseconds of looks that the role has had */
	int64		count;			/* entries of the role, also those put off */
	dlist_head	queue;			/* list of Pending */
} RoleTurn;

static HTAB *all_pending = NULL;	/* Pending, by key */
static HTAB *turns = NULL;		/* RoleTurn, by role */
static dlist_head put_off = DLIST_STATIC_INIT(put_off); /* list of Pending */
static TimestampTz next_resume = DT_NOEND;	/* no entry that is put off is sooner */

static void
make_tables(void)
{
	HASHCTL		pending = {
		.keysize = sizeof(PendingKey),.entrysize = sizeof(Pending),.hcxt = TopMemoryContext
	};
	HASHCTL		roles = {.keysize = sizeof(Oid),.entrysize = sizeof(RoleTurn),.hcxt = TopMemoryContext};

	all_pending = hash_create("queue_jobs pending", 256, &pending, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	turns = hash_create("queue_jobs turns", 16, &roles, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* The role whose turn is next; NULL: nothing is pending. There are few roles, as a rule. */
static RoleTurn *
next_turn(void)
{
	HASH_SEQ_STATUS scan;
	RoleTurn   *turn;
	RoleTurn   *next = NULL;

	hash_seq_init(&scan, turns);
	while ((turn = hash_seq_search(&scan)) != NULL)
		if (!dlist_is_empty(&turn->queue) && (next == NULL || turn->time < next->time))
			next = turn;
	return next;
}

static void
forget_idle_roles(void)
{
	HASH_SEQ_STATUS scan;
	RoleTurn   *turn;

	hash_seq_init(&scan, turns);
	while ((turn = hash_seq_search(&scan)) != NULL)
		if (turn->count == 0)
			(void) hash_search(turns, &turn->role, HASH_REMOVE, NULL);
}

/* A role that had nothing pending gets no time in return: it begins level with the role that is next. */
static RoleTurn *
turn_of(Oid role)
{
	RoleTurn   *turn;
	RoleTurn   *next;
	bool		found;

	if (all_pending == NULL)
		make_tables();
	if (hash_get_num_entries(turns) > MOST_IDLE_ROLES)
		forget_idle_roles();
	turn = hash_search(turns, &role, HASH_ENTER, &found);
	if (!found)
	{
		turn->time = turn->count = 0;
		dlist_init(&turn->queue);
	}
	if (dlist_is_empty(&turn->queue) && (next = next_turn()) != NULL)
		turn->time = Max(turn->time, next->time);
	return turn;
}

static bool
turn_has_room(const RoleTurn *turn)
{
	return turn->count < ROOM_OF_EACH || turn->count < MOST_PENDING - hash_get_num_entries(all_pending);
}

bool
pending_is_low(Oid role)
{
	const RoleTurn *turn = turn_of(role);

	return turn->count < LOW && turn_has_room(turn);
}

/* The entry of the key. If it is new (not *found), the caller must put it into a list. */
static Pending *
enter(RoleTurn *turn, const PendingKey *key, bool *found)
{
	Pending    *pending = hash_search(all_pending, key, HASH_ENTER, found);

	if (!*found)
	{
		turn->count++;
		pending->after[0] = pending->after[1] = PG_INT64_MIN;
		pending->tries = 0;
		pending->at = DT_NOBEGIN;
	}
	return pending;
}

/* An entry that is put off becomes pending now: there is news of it. */
Pending *
pending_add(Oid role, PendingKind kind, int64 id)
{
	PendingKey	key = {.id = id,.role = role,.kind = kind};
	RoleTurn   *turn = turn_of(role);
	bool		found;
	Pending    *pending = turn_has_room(turn) ? enter(turn, &key, &found)
										 : hash_search(all_pending, &key, HASH_FIND, &found);

	if (pending != NULL)
		pending->after[0] = pending->after[1] = PG_INT64_MIN;	/* news concerns those before, too */
	if (pending == NULL || (found && pending->at == DT_NOBEGIN))
		return pending;
	if (found)
		dlist_delete(&pending->node);
	pending->at = DT_NOBEGIN;
	dlist_push_tail(&turn->queue, &pending->node);
	return pending;
}

static void
take_pending(RoleTurn *turn, Pending *taken)
{
	Pending    *pending = dlist_container(Pending, node, dlist_pop_head_node(&turn->queue));

	*taken = *pending;
	turn->count--;
	(void) hash_search(all_pending, &taken->key, HASH_REMOVE, NULL);
}

bool
pending_take(Pending *taken)
{
	RoleTurn   *turn = turns ? next_turn() : NULL;

	if (turn == NULL)
		return false;
	take_pending(turn, taken);
	return true;
}

bool
pending_take_more(const Pending *last, PendingKind kind, Pending *taken)
{
	RoleTurn   *turn = turn_of(last->key.role);

	if (dlist_is_empty(&turn->queue) ||
		dlist_container(Pending, node, dlist_head_node(&turn->queue))->key.kind != kind)
		return false;
	take_pending(turn, taken);
	return true;
}

void
pending_charge(Oid role, int64 time)
{
	turn_of(role)->time += Max(time, 1);
}

void
pending_put_back(const Pending *taken)
{
	RoleTurn   *turn = turn_of(taken->key.role);
	bool		found;
	Pending    *pending = enter(turn, &taken->key, &found);

	if (found)
		return;
	memcpy(pending->after, taken->after, sizeof(pending->after));
	dlist_push_tail(&turn->queue, &pending->node);
}

void
pending_put_off(const Pending *taken, int64 delay)
{
	bool		found;
	Pending    *pending = enter(turn_of(taken->key.role), &taken->key, &found);

	if (found)
		return;
	delay = Min(delay << Min(taken->tries, 6), LONGEST_DELAY);
	pending->tries = taken->tries + 1;
	pending->at = GetCurrentTimestamp() + delay;
	dlist_push_tail(&put_off, &pending->node);
	next_resume = Min(next_resume, pending->at);
}

/* Whether the delay until "at" is over. A time too far ahead is from before the clock was set back. */
static bool
is_over(TimestampTz at)
{
	TimestampTz now = GetCurrentTimestamp();

	return at <= now || (at != DT_NOEND && at - now > LONGEST_DELAY);
}

void
pending_resume(void)
{
	dlist_mutable_iter i;

	if (!is_over(next_resume))
		return;
	next_resume = DT_NOEND;
	dlist_foreach_modify(i, &put_off)
	{
		Pending    *pending = dlist_container(Pending, node, i.cur);

		if (is_over(pending->at))
			(void) pending_add(pending->key.role, pending->key.kind, pending->key.id);
		else
			next_resume = Min(next_resume, pending->at);
	}
}

TimestampTz
pending_next(void)
{
	return next_resume;
}

bool
pending_any(void)
{
	return all_pending != NULL && hash_get_num_entries(all_pending) > 0;
}
