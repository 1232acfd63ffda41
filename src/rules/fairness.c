/*
 * fairness.c
 *		Which lane's job goes next; see fairness.h.
 *
 * Stride scheduling: a queue's clock advances by STRIDE / weight with each of its jobs, and the queue whose
 * clock is behind all others goes next. The clock of the last to go is the time of its urgency: a queue that
 * comes back after it had nothing to do starts from there, and has saved up no turns.
 *
 * Why there are sets of lanes: a session whose claims alternate between two arrays makes new candidates for
 * each claim. If what is known of a set were kept there, an urgency that was passed over would get no turn
 * before its first job is 30 s old, instead of 3 s after it was passed over
 * (test/isolation/specs/passed_over.spec fails).
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "common/pg_prng.h"
#include "fairness.h"
#include "utils/hsearch.h"

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

QueueTurns *
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

int
fairness_compare(QueueTurns *a, QueueTurns *b)
{
	int64		x = clock_of(a);
	int64		y = clock_of(b);

	return x < y ? -1 : x > y;
}

void
fairness_charge(QueueTurns *turns, int weight)
{
	times[turns->key.urgency] = clock_of(turns);
	turns->clock += STRIDE / weight;
}
