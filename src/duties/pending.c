/*
 * pending.c
 *		Batches and jobs that the scheduler has yet to look at.
 */
#include "postgres.h"

#include "catalog.h"
#include "catalog/pg_type.h"
#include "end_news.h"
#include "executor/spi.h"
#include "lane.h"
#include "pending.h"
#include "run_as.h"
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

/* Makes the tables, at first use. */
static void
make_tables(void)
{
	HASHCTL		pending = {
		.keysize = sizeof(PendingKey), .entrysize = sizeof(Pending), .hcxt = TopMemoryContext
	};
	HASHCTL		roles = {.keysize = sizeof(Oid), .entrysize = sizeof(RoleTurn), .hcxt = TopMemoryContext};

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

/* Forgets roles for which nothing is pending. */
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

/* Whether the role may add to what is pending: it has some room that others cannot take. */
static bool
turn_has_room(const RoleTurn *turn)
{
	return turn->count < ROOM_OF_EACH || turn->count < MOST_PENDING - hash_get_num_entries(all_pending);
}

/* Whether the role has few entries, and room for more. */
static bool
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
	PendingKey	key = {.id = id, .role = role, .kind = kind};
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

/* Takes what is next in the role's turn. */
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

/*
 * Finds all batches and jobs to look at, a piece at a time.
 *
 * The scheduler first notes the jobs that others wait for (end_news.h): their ends are news from then on.
 * Only then does it read the waiting jobs and the running batches: some of these may have missed an end
 * before.
 *
 * A pass reads ids in their order. It ends soon, because it only makes jobs and batches pending,
 * and leaves the looks for later. When a role's room runs out, the pass notes the place, and a later pass
 * reads the role's rest from there.
 */

#define PIECE CppAsString2(IDS_AT_ONCE)
#define AGAIN_AFTER_FAILURE (5 * USECS_PER_SEC)
#define EXPIRES_SOON (60 * USECS_PER_SEC)

/* A row of the queries below: place, id to look at or to watch, lane or role, and if the id is wanted. */
typedef struct Row
{
	int64		key[2];
	int64		value;
	int64		owner;
	bool		wanted;
} Row;

typedef struct Piece
{
	const char *sql;
	Oid			key_type;
	bool		of_jobs;		/* rows name a lane, whose owner is the role */
	int64		after[2];
	int			count;
	Row			rows[IDS_AT_ONCE];
} Piece;

#define WATCHED_BY_JOBS \
	"SELECT d.child, d.named, d.parent, 0::int8, coalesce((SELECT l.waits IS NOT NULL FROM queue_jobs.live_job l WHERE l.id = d.child), false)" \
	" FROM queue_jobs.dependency d WHERE (d.child, d.named) > ($1, $2) ORDER BY d.child, d.named LIMIT " PIECE
#define WATCHED_BY_BATCHES \
	"SELECT m.job, m.batch, m.job, 0::int8, true FROM queue_jobs.joint_member m WHERE (m.job, m.batch) > ($1, $2) ORDER BY m.job, m.batch LIMIT " PIECE
#define WAITING_JOBS \
	"SELECT l.id, 0::int8, l.id, l.lane::int8, true FROM queue_jobs.live_job l WHERE l.waits IS NOT NULL AND l.id > $1 ORDER BY l.id LIMIT " PIECE
/* A batch that ended without success is wanted if no member is dead or cancelled now: a retry may mend it. */
#define RUNNING_BATCHES \
	"SELECT b.id, 0::int8, b.id, b.owner::oid::int8, b.settled_at IS NULL OR" \
	" (SELECT true FROM queue_jobs.member_job m WHERE m.batch = b.id AND m.state IN ('dead', 'cancelled') LIMIT 1) IS NULL" \
	" FROM queue_jobs.tracked_batch b WHERE (b.settled_at IS NULL OR b.succeeded_at IS NULL) AND b.id > $1 ORDER BY b.id LIMIT " PIECE
/*
 * Members that expire, and their batch. A row is needed even without a batch of its own if a duplicate made
 * the job a member of others. A job without a batch whose worker has on_expired stands, below zero, in place
 * of the batch.
 */
#define EXPIRING_MEMBERS \
	"SELECT l.expires_at, l.id, CASE WHEN l.attempt = 0 THEN coalesce(l.batch, (SELECT -l.id FROM queue_jobs.lane a" \
	"  JOIN queue_jobs.defined_worker w ON w.name = a.worker WHERE a.id = l.lane AND w.on_expired IS NOT NULL)) END, l.lane::int8," \
	" l.attempt = 0 AND EXISTS (SELECT FROM queue_jobs.joint_member m WHERE m.job = l.id)" \
	" FROM queue_jobs.live_job l WHERE l.expires_at IS NOT NULL AND (l.expires_at, l.id) > ($1, $2) ORDER BY l.expires_at, l.id LIMIT " PIECE

typedef enum Phase
{
	AT_REST,
	JOBS_OF_JOBS,				/* note the jobs that other jobs wait for */
	JOBS_OF_BATCHES,
	PASS_WAITING,
	PASS_BATCHES,
} Phase;

static const char *const phase_sql[] = {
	NULL, WATCHED_BY_JOBS, WATCHED_BY_BATCHES, WAITING_JOBS, RUNNING_BATCHES
};

/* A place in the order in which a pass reads: jobs by id, then batches by id. */
typedef uint64 Place;

#define FIRST_BATCH ((Place) 1 << 63)

/* A role some of whose jobs and batches are left to a later pass. */
typedef struct Left
{
	Oid			role;			/* hash key */
	Place		from;
	bool		full;			/* the role's room ran out in this pass */
	bool		again;			/* once the rest has been found, read all before "from", too */
} Left;

static Phase phase = AT_REST;
static int64 after[2];			/* the place of the last row that was read */
static bool of_all = false;		/* the pass is for all roles, not only for those in "left" */
static HTAB *left = NULL;		/* Left, by role */
static bool finds_expiring = false;
static int64 expiring_after[2];
static TimestampTz find_again_at = DT_NOEND;	/* jobs that expire */
static TimestampTz expiring_until = DT_NOEND;	/* a walk for jobs that expire soon ends there */
static TimestampTz not_before = DT_NOEND;	/* no query sooner, since one has failed */

/* ---- reading ---- */

/* Reads a row that the query returned. */
static void
read_row(Row *row, HeapTuple tuple, TupleDesc descriptor)
{
	bool		isnull;
	Datum		value;

	row->key[0] = DatumGetInt64(SPI_getbinval(tuple, descriptor, 1, &isnull));
	row->key[1] = DatumGetInt64(SPI_getbinval(tuple, descriptor, 2, &isnull));
	value = SPI_getbinval(tuple, descriptor, 3, &isnull);
	row->value = isnull ? 0 : DatumGetInt64(value);
	row->owner = DatumGetInt64(SPI_getbinval(tuple, descriptor, 4, &isnull));
	row->wanted = DatumGetBool(SPI_getbinval(tuple, descriptor, 5, &isnull));
}

/* Replaces the lanes of the rows by their owners. */
static void
find_owners(Piece *piece)
{
	for (int i = 0; i < piece->count; i++)
	{
		const Lane *lane = lane_get((int32) piece->rows[i].owner);

		piece->rows[i].owner = lane ? lane->owner : InvalidOid;
	}
}

/* Reads the next piece of what may be pending. */
static void
read_piece(void *argument)
{
	Piece	   *piece = argument;
	Oid			types[] = {piece->key_type, INT8OID};
	Datum		values[] = {Int64GetDatum(piece->after[0]), Int64GetDatum(piece->after[1])};
	RunAs		saved;

	engine_begin(&saved);
	piece->count = (int) engine_execute_often(piece->sql, SPI_OK_SELECT, lengthof(types), types, values,
											  NULL);
	for (int i = 0; i < piece->count; i++)
		read_row(&piece->rows[i], SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
	engine_end(&saved);
	if (piece->of_jobs)
		find_owners(piece);
}

/* If the query fails, catalog_unit() logs the error, and the next query waits. */
static bool
read_safely(Piece *piece)
{
	if (catalog_unit(read_piece, piece))
		return true;
	not_before = GetCurrentTimestamp() + AGAIN_AFTER_FAILURE;
	return false;
}

/* ---- what is found ---- */

/* Finds, makes or removes the note of what was left out of a role's. */
static Left *
find_left(Oid role, HASHACTION action)
{
	bool		found;
	Left	   *entry;

	if (left == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(Oid), .entrysize = sizeof(Left), .hcxt = TopMemoryContext};

		left = hash_create("queue_jobs left", 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	entry = hash_search(left, &role, action, &found);
	if (!found && entry != NULL)
		entry->again = false;
	return entry;
}

/* Adds what a pass has found, unless there is no room: then the next pass begins there. */
static void
found(PendingKind kind, int64 id, Oid role)
{
	Place		place = (Place) id | (kind == PENDING_BATCH ? FIRST_BATCH : 0);
	Left	   *entry = find_left(role, HASH_FIND);

	if (entry == NULL ? !of_all : entry->full || place < entry->from)
		return;
	if (pending_add(role, kind, id) != NULL)
	{
		if (entry != NULL)
			entry->from = place + 1;
		return;
	}
	entry = find_left(role, HASH_ENTER);
	entry->from = place;
	entry->full = true;
}

/* Ends a pass over the tables: roles of which all was found need no other. */
static void
end_pass(void)
{
	HASH_SEQ_STATUS scan;
	Left	   *entry;

	if (left == NULL)
		return;
	hash_seq_init(&scan, left);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (!entry->full && !entry->again)
			(void) hash_search(left, &entry->role, HASH_REMOVE, NULL);
		else if (!entry->full)
		{
			entry->from = 0;
			entry->again = false;
		}
		entry->full = false;
	}
}

/* Ends the last phase. */
static void
end_rest(void)
{
	end_pass();
	phase = AT_REST;
}

/* Whether every role in "left" has run out of room in this pass. */
static bool
is_full(void)
{
	HASH_SEQ_STATUS scan;
	Left	   *entry;

	hash_seq_init(&scan, left);
	while ((entry = hash_seq_search(&scan)) != NULL)
	{
		if (entry->full)
			continue;
		hash_seq_term(&scan);
		return false;
	}
	return true;
}

/* Begins the phase, which reads from that place on. */
static void
begin_phase(Phase next, Place from)
{
	phase = next;
	after[0] = (int64) (from & ~FIRST_BATCH) - 1;
	after[1] = PG_INT64_MAX;
	if (from == 0)
		after[0] = PG_INT64_MIN;
}

/* Goes on to the next phase. */
static void
end_phase(void)
{
	HASH_SEQ_STATUS scan;
	Left	   *entry;

	if (phase == JOBS_OF_JOBS || phase == PASS_WAITING)
	{
		begin_phase(phase + 1, 0);
		return;
	}
	if (phase == PASS_BATCHES)
	{
		end_rest();
		return;
	}
	news_filter_known();
	of_all = true;
	if (left != NULL)
	{
		hash_seq_init(&scan, left);
		while ((entry = hash_seq_search(&scan)) != NULL)
			entry->again = true;
	}
	begin_phase(PASS_WAITING, 0);
}

/* Begins a pass for the roles in "left", if there is room for any of them. */
static bool
begin_rest(void)
{
	HASH_SEQ_STATUS scan;
	Left	   *entry;
	Place		from = PG_UINT64_MAX;

	if (left == NULL)
		return false;
	hash_seq_init(&scan, left);
	while ((entry = hash_seq_search(&scan)) != NULL)
		if (pending_is_low(entry->role))
			from = Min(from, entry->from);
	if (from == PG_UINT64_MAX)
		return false;
	of_all = false;
	begin_phase(from >= FIRST_BATCH ? PASS_BATCHES : PASS_WAITING, from);
	return true;
}

bool
look_all_may_begin(void)
{
	return phase == AT_REST && not_before == DT_NOEND;
}

void
look_all_begin(void)
{
	begin_phase(JOBS_OF_JOBS, 0);
}

/* Adds the next piece of this phase. */
static void
step_of_phase(void)
{
	Piece		piece = {
		.sql = phase_sql[phase], .key_type = INT8OID, .of_jobs = phase == PASS_WAITING,
		.after = {after[0], after[1]}
	};

	if (!read_safely(&piece))
		return;
	for (int i = 0; i < piece.count; i++)
	{
		const Row  *row = &piece.rows[i];

		if (!row->wanted)
			continue;
		if (phase == PASS_WAITING || phase == PASS_BATCHES)
			found(phase == PASS_BATCHES ? PENDING_BATCH : PENDING_JOB, row->value, (Oid) row->owner);
		else
			news_await_job(row->value);
	}
	if (piece.count > 0)
		memcpy(after, piece.rows[piece.count - 1].key, sizeof(after));
	if ((phase == PASS_WAITING || phase == PASS_BATCHES) && !of_all && is_full())
		end_rest();
	else if (piece.count < IDS_AT_ONCE)
		end_phase();
}

/* ---- members that expire, and jobs without a batch ---- */

void
look_all_find_expiring(void)
{
	find_again_at = DT_NOEND;
	expiring_until = DT_NOEND;
	finds_expiring = true;
	expiring_after[0] = expiring_after[1] = PG_INT64_MIN;
}

/* The role has no room for a batch with members that expire: a later pass finds it among all its batches. */
static void
leave_all(Oid role)
{
	Left	   *entry = find_left(role, HASH_FIND);
	bool		is_new = entry == NULL;

	if (is_new)
	{
		entry = find_left(role, HASH_ENTER);
		entry->from = phase == AT_REST ? 0 : PG_UINT64_MAX;
		entry->full = false;
	}
	entry->again = !is_new || phase != AT_REST;
}

/* Adds a job that expires soon. Those that expire later, or find no room, are found again by then. */
static void
add_expiring_job(Oid role, int64 id, TimestampTz at)
{
	TimestampTz now = GetCurrentTimestamp();

	if (at > now + EXPIRES_SOON)
		find_again_at = Min(find_again_at, at);
	else if (pending_add(role, PENDING_JOB, id) == NULL)
		find_again_at = Min(find_again_at, now + USECS_PER_SEC);
}

/* Adds the jobs, and the batches, of the next piece. */
static void
step_of_expiring(void)
{
	Piece		piece = {
		.sql = EXPIRING_MEMBERS, .key_type = TIMESTAMPTZOID, .of_jobs = true,
		.after = {expiring_after[0], expiring_after[1]}
	};

	if (!read_safely(&piece))
		return;
	for (int i = 0; i < piece.count; i++)
	{
		const Row  *row = &piece.rows[i];
		Oid			role = (Oid) row->owner;

		if (row->value < 0)
			add_expiring_job(role, -row->value, row->key[0]);
		if ((row->value > 0 && pending_add(role, PENDING_BATCH, row->value) == NULL) ||
			(row->wanted && pending_add(role, PENDING_MANY, row->key[1]) == NULL))
			leave_all(role);
	}
	if (piece.count > 0)
		memcpy(expiring_after, piece.rows[piece.count - 1].key, sizeof(expiring_after));
	finds_expiring = piece.count == IDS_AT_ONCE && expiring_after[0] <= expiring_until;
	if (piece.count == IDS_AT_ONCE && !finds_expiring)
		find_again_at = Min(find_again_at, expiring_after[0]);
}

bool
look_all_step(void)
{
	TimestampTz now = GetCurrentTimestamp();

	if (not_before != DT_NOEND && now < not_before && not_before - now <= AGAIN_AFTER_FAILURE)
		return false;
	not_before = DT_NOEND;
	if (find_again_at <= now)
	{
		look_all_find_expiring();
		expiring_until = now + EXPIRES_SOON;
	}
	if (finds_expiring)
		step_of_expiring();
	else if (phase != AT_REST || begin_rest())
		step_of_phase();
	else
		return false;
	return true;
}

TimestampTz
look_all_next(void)
{
	return Min(not_before, find_again_at);
}

bool
look_all_done(void)
{
	return phase == AT_REST && !finds_expiring && (left == NULL || hash_get_num_entries(left) == 0);
}

/* ---- for a session ---- */

int
look_all_read(bool batches, int64 *after_id, int64 ids[IDS_AT_ONCE], bool *last)
{
	Piece		piece = {
		.sql = batches ? RUNNING_BATCHES : WAITING_JOBS, .key_type = INT8OID, .of_jobs = !batches,
		.after = {*after_id, 0}
	};
	int			count = 0;

	read_piece(&piece);
	for (int i = 0; i < piece.count; i++)
		if (piece.rows[i].wanted)
			ids[count++] = piece.rows[i].value;
	if (piece.count > 0)
		*after_id = piece.rows[piece.count - 1].key[0];
	*last = piece.count < IDS_AT_ONCE;
	return count;
}
