/*
 * housekeeping.c
 *		Removes what has been kept for long enough; see housekeeping.h.
 */
#include "postgres.h"

#include "access/table.h"
#include "batch.h"
#include "catalog.h"
#include "catalog/pg_type_d.h"
#include "executor/spi.h"
#include "history.h"
#include "housekeeping.h"
#include "job.h"
#include "long_job.h"
#include "miscadmin.h"
#include "park.h"
#include "run_as.h"
#include "settings.h"
#include "statistics.h"
#include "storage/bufmgr.h"
#include "test_point.h"
#include "utils/array.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "waiting.h"

#define TRIM_FOR INT64CONST(25000)	/* microseconds, before other duties have their turn */
#define BLOCKS_OF_PIECE 16		/* some 1,000 rows at most */

/*
 * Goes through the blocks that a table has when the walk begins, so that a statement for each piece is short
 * however large the table is: ctid >= from AND ctid < to.
 */
typedef struct TableWalk
{
	BlockNumber at;
	BlockNumber end;
} TableWalk;

/* Begins a walk through the table. */
static void
table_walk_begin(TableWalk *walk, CatalogRelation table)
{
	Relation	rel = table_open(catalog_relation(table), AccessShareLock);

	walk->at = 0;
	walk->end = RelationGetNumberOfBlocks(rel);
	table_close(rel, NoLock);
}

/* Returns the bounds of the next piece; false if there is none. */
static bool
table_walk_next(TableWalk *walk, ItemPointer from, ItemPointer to)
{
	if (walk->at >= walk->end)
		return false;
	ItemPointerSet(from, walk->at, 0);
	walk->at = walk->end - walk->at <= BLOCKS_OF_PIECE ? walk->end : walk->at + BLOCKS_OF_PIECE;
	ItemPointerSet(to, walk->at, 0);
	return true;
}

/* ---- dead jobs ---- */

#define TRIM_EVERY (10 * USECS_PER_MINUTE)
#define TRIM_AT_ONCE 1000		/* dead jobs, before other duties have their turn */
#define MAX_LOGGED 100			/* workers and owners that are remembered as logged */

/* Dead jobs that others waited for when they ended, and wait for no longer, become like the rest. */
#define MOVE_AWAITED "UPDATE queue_jobs.finished_job f SET slice = $4" \
	" WHERE slice = $3 AND f.ctid >= $1 AND f.ctid < $2 AND batch IS NULL AND state = 'dead' AND " NEEDED_BY_NONE("f.id")

/*
 * The lanes of those workers and owners that have too many; how many these have, and the latest of these jobs
 * that goes. It reads all of them, and writes nothing.
 */
#define FIND_CROWDED "WITH crowded AS (SELECT * FROM (" \
	"  SELECT lane, worker, owner, sum(number) OVER (PARTITION BY worker, owner)::bigint AS jobs" \
	"  FROM (SELECT lane, count(*) AS number FROM queue_jobs.dead_job WHERE keep_until > $1 GROUP BY lane) AS counted" \
	"  LEFT JOIN queue_jobs.lane ON lane.id = counted.lane) AS lanes WHERE jobs > $2)," \
	" latest AS (SELECT * FROM (SELECT worker, owner, finished_at, dead_job.id," \
	"   row_number() OVER (PARTITION BY worker, owner ORDER BY finished_at DESC, dead_job.id DESC) AS place" \
	"  FROM queue_jobs.dead_job JOIN crowded USING (lane) WHERE keep_until > $1) AS ranked WHERE place = $2 + 1)" \
	" SELECT array_agg(c.lane), array_agg(c.jobs), array_agg(l.finished_at), array_agg(l.id) FROM crowded c" \
	" JOIN latest l ON l.worker IS NOT DISTINCT FROM c.worker AND l.owner IS NOT DISTINCT FROM c.owner"

/*
 * Returns how many jobs of a worker and owner were removed, and how many it had before the first piece if
 * there were too many; NULL: these were too old. Jobs that another transaction is just retrying are left
 * alone until the next time.
 */
#define REMOVE_DEAD "WITH crowded AS (SELECT * FROM unnest($4, $5, $6, $7) AS c (lane, jobs, finished_at, id))," \
	" removed AS (DELETE FROM queue_jobs.dead_job WHERE ctid = ANY (ARRAY(" \
	"  SELECT f.ctid FROM queue_jobs.dead_job f LEFT JOIN crowded c ON c.lane = f.lane" \
	"  WHERE f.ctid >= $1 AND f.ctid < $2" \
	"  AND (f.keep_until <= $3 OR (f.finished_at, f.id) <= (c.finished_at, c.id)) AND " NEEDED_BY_NONE("f.id") \
	"  FOR UPDATE OF f SKIP LOCKED)) RETURNING lane, keep_until)" \
	" SELECT coalesce(worker, ''), coalesce(owner::oid, 0), jobs, count(*) FROM removed r" \
	" LEFT JOIN crowded c ON c.lane = r.lane AND r.keep_until > $3 LEFT JOIN queue_jobs.lane ON lane.id = r.lane" \
	" GROUP BY 1, 2, 3"

typedef enum TrimPhase
{
	TRIM_REST,					/* until it is time for the next one */
	TRIM_MOVES,
	TRIM_RANKS,
	TRIM_REMOVES
} TrimPhase;

/* How far this process has got. */
typedef struct DeadTrim
{
	TrimPhase	phase;
	TableWalk	walk;			/* through the table of this phase */
	MemoryContext context;		/* of "crowded" */
	Datum		crowded[4];		/* arrays, as FIND_CROWDED returns them */
	bool		any_crowded;
} DeadTrim;

/*
 * Once for each worker and owner in the life of this process: a worker that goes on failing would fill the
 * log.
 */
static void
log_removed(const char *worker, Oid owner, int64 jobs)
{
	static List *logged = NIL;	/* of char * */
	char	   *role = GetUserNameFromId(owner, true);
	char	   *name = psprintf("%u %s", owner, worker);
	MemoryContext old;

	if (is_listed(name, logged) || list_length(logged) >= MAX_LOGGED)
		return;
	old = MemoryContextSwitchTo(TopMemoryContext);
	logged = lappend(logged, pstrdup(name));
	MemoryContextSwitchTo(old);
	ereport(LOG,
			(errmsg("queue_jobs removes the oldest dead jobs of worker \"%s\" and role \"%s\"",
					worker, role ? role : "(dropped)"),
			 errdetail("It had " INT64_FORMAT "; at most %d are kept.", jobs, queue_jobs_max_dead_jobs),
			 errhint("Retry or discard dead jobs, or increase \"queue_jobs.max_dead_jobs\".")));
}

/* Moves a piece of the awaited jobs that nothing awaits any more; returns how many. */
static uint64
move_awaited(ItemPointer from, ItemPointer to)
{
	Oid			types[] = {TIDOID, TIDOID, INT4OID, INT4OID};
	Datum		values[] = {PointerGetDatum(from), PointerGetDatum(to),
							Int32GetDatum(HISTORY_MEMBERS), Int32GetDatum(HISTORY_DEAD)};

	return engine_execute(MOVE_AWAITED, SPI_OK_UPDATE, lengthof(types), types, values, NULL);
}

/* Notes in "trim" which lanes have dead jobs beyond queue_jobs.max_dead_jobs, and from which job on. */
static void
find_crowded(DeadTrim *trim, TimestampTz now)
{
	Oid			types[] = {TIMESTAMPTZOID, INT8OID};
	Datum		values[] = {TimestampTzGetDatum(now), Int64GetDatum(queue_jobs_max_dead_jobs)};
	MemoryContext old;

	if (trim->context == NULL)
		trim->context = AllocSetContextCreate(TopMemoryContext, "queue_jobs dead jobs",
											  ALLOCSET_SMALL_SIZES);
	MemoryContextReset(trim->context);
	trim->any_crowded = false;
	engine_execute(FIND_CROWDED, SPI_OK_SELECT, lengthof(types), types, values, NULL);
	old = MemoryContextSwitchTo(trim->context);
	for (int i = 0; i < lengthof(trim->crowded); i++)
	{
		bool		isnull;
		Datum		found = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1, &isnull);

		if (isnull)
			break;
		trim->crowded[i] = PointerGetDatum(DatumGetArrayTypePCopy(found));
		trim->any_crowded = i == lengthof(trim->crowded) - 1;
	}
	MemoryContextSwitchTo(old);
}

/* Removes a piece of the dead jobs that are too old or too many; returns how many. */
static uint64
remove_dead(const DeadTrim *trim, TimestampTz now, ItemPointer from, ItemPointer to)
{
	Oid			types[] = {
		TIDOID, TIDOID, TIMESTAMPTZOID, INT4ARRAYOID, INT8ARRAYOID, TIMESTAMPTZARRAYOID, INT8ARRAYOID
	};
	Datum		values[] = {
		PointerGetDatum(from), PointerGetDatum(to), TimestampTzGetDatum(now),
		trim->crowded[0], trim->crowded[1], trim->crowded[2], trim->crowded[3]
	};
	const char *nulls = trim->any_crowded ? NULL : "   nnnn";
	uint64		groups = engine_execute(REMOVE_DEAD, SPI_OK_SELECT, lengthof(types), types, values, nulls);
	uint64		all = 0;

	for (uint64 i = 0; i < groups; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	descriptor = SPI_tuptable->tupdesc;
		bool		isnull;
		char	   *worker = SPI_getvalue(row, descriptor, 1);
		Oid			owner = DatumGetObjectId(SPI_getbinval(row, descriptor, 2, &isnull));
		int64		removed = DatumGetInt64(SPI_getbinval(row, descriptor, 4, &isnull));
		int64		jobs = DatumGetInt64(SPI_getbinval(row, descriptor, 3, &isnull));

		all += removed;
		if (isnull)
			continue;
		statistics_count(worker, COUNTED_PUSHED_OUT, removed);
		log_removed(worker, owner, jobs);
	}
	return all;
}

/*
 * Does the next piece, and returns how many jobs it has moved or removed. What fails is not tried again
 * before the next trim, so that it does not keep all else from being trimmed.
 */
static uint64
trim_dead_next(DeadTrim *trim, TimestampTz now)
{
	ItemPointerData from;
	ItemPointerData to;

	switch (trim->phase)
	{
		case TRIM_MOVES:
			if (table_walk_next(&trim->walk, &from, &to))
				return move_awaited(&from, &to);
			trim->phase = TRIM_RANKS;
			return TRIM_AT_ONCE;	/* the next takes a turn by itself */
		case TRIM_RANKS:
			trim->phase = TRIM_REMOVES;
			table_walk_begin(&trim->walk, REL_DEAD_JOB);
			find_crowded(trim, now);
			return TRIM_AT_ONCE;
		case TRIM_REMOVES:
			if (table_walk_next(&trim->walk, &from, &to))
				return remove_dead(trim, now, &from, &to);
			trim->phase = TRIM_REST;
			return 0;
		case TRIM_REST:
			break;
	}
	return 0;
}

/*
 * Removes dead jobs that are too old or too many, for a short while; true: the next call goes on. It begins
 * every ten minutes at most.
 */
static bool
trim_dead(TimestampTz now)
{
	static DeadTrim trim = {.phase = TRIM_REST};
	static TimestampTz next_trim = 0;
	int64		start = clock_elapsed();
	uint64		trimmed = 0;
	RunAs		saved;

	if (trim.phase == TRIM_REST)
	{
		if ((now < next_trim && next_trim - now <= TRIM_EVERY) ||	/* or the clock was set back */
			(table_has_no_rows(REL_DEAD_JOB) && table_has_no_rows(REL_MEMBER_JOB)))
			return false;
		next_trim = now + TRIM_EVERY;
		trim.phase = TRIM_MOVES;
		table_walk_begin(&trim.walk, REL_MEMBER_JOB);
	}
	engine_begin(&saved);
	while (trim.phase != TRIM_REST && trimmed < TRIM_AT_ONCE && clock_elapsed() - start < TRIM_FOR)
		trimmed += trim_dead_next(&trim, now);
	engine_end(&saved);
	if (trim.phase == TRIM_REMOVES)
		test_point("dead_trimmed");
	return trim.phase != TRIM_REST;
}

/* ---- tokens ---- */

/*
 * Removes tokens for a short while, and returns "now" if the next call goes on: it goes through all of them,
 * for no index has their times. A token that another session has locked, to use or to take it, stays: its
 * transaction may be open for long. Returns when there will be more of them, though not sooner than is worth
 * a look.
 */
static TimestampTz
trim_tokens(TimestampTz now)
{
	static TableWalk walk;
	static bool under_way = false;
	static TimestampTz next;
	Oid			types[] = {TIDOID, TIDOID};
	int64		start = clock_elapsed();
	ItemPointerData from;
	ItemPointerData to;
	RunAs		saved;

	if (!under_way)
	{
		table_walk_begin(&walk, REL_TOKEN);
		next = DT_NOEND;
	}
	engine_begin(&saved);
	while ((under_way = table_walk_next(&walk, &from, &to)))
	{
		Datum		values[] = {PointerGetDatum(&from), PointerGetDatum(&to)};
		Datum		expires_at;
		bool		isnull;

		engine_execute("DELETE FROM queue_jobs.token WHERE ctid = ANY (ARRAY("
					   " SELECT ctid FROM queue_jobs.token WHERE ctid >= $1 AND ctid < $2 AND expires_at <= clock_timestamp()"
					   " FOR UPDATE SKIP LOCKED))", SPI_OK_DELETE, lengthof(types), types, values, NULL);
		engine_execute("SELECT min(expires_at) FROM queue_jobs.token WHERE ctid >= $1 AND ctid < $2",
					   SPI_OK_SELECT, lengthof(types), types, values, NULL);
		expires_at = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
		if (!isnull)
			next = Min(next, DatumGetTimestampTz(expires_at));
		if (clock_elapsed() - start >= TRIM_FOR)
			break;
	}
	engine_end(&saved);
	if (under_way)
		return now;
	return next == DT_NOEND ? DT_NOEND : Max(next, now + HISTORY_LOOK_AFTER);
}

/* ---- what ended jobs have left ---- */

/* Tables whose rows are needed no more when their jobs have ended, and what removes these from a piece. */
static const struct
{
	CatalogRelation table;
	void		(*trim) (ItemPointer from, ItemPointer to);
}			leftovers[] = {
	{REL_CLAIMED_SLOT, limit_trim_claimed},
	{REL_SAVED_STEP, saved_steps_trim},
	{REL_LATEST_CALL, waiting_trim},
};

/* Removes such rows for a short while; true: the next call goes on. A piece that fails is left alone. */
static bool
trim_leftovers(void)
{
	static int	at = 0;			/* in "leftovers" */
	static bool under_way = false;
	static TableWalk walk;
	int64		start = clock_elapsed();
	ItemPointerData from;
	ItemPointerData to;

	for (; at < lengthof(leftovers); at++)
	{
		if (!under_way)
			table_walk_begin(&walk, leftovers[at].table);
		while ((under_way = table_walk_next(&walk, &from, &to)))
		{
			leftovers[at].trim(&from, &to);
			test_point("leftovers_trimmed");
			if (clock_elapsed() - start >= TRIM_FOR)
				return true;
		}
	}
	at = 0;
	return false;
}

/* ---- all ---- */

/*
 * Each call removes a piece of what may be much: dead jobs, tokens, batches, leftovers. While pieces are
 * left, the calls do nothing else.
 */
TimestampTz
housekeeping(TimestampTz now)
{
	static TimestampTz next = DT_NOEND;
	static bool dead_left = false;
	static bool tokens_left = false;
	static bool batches_left = false;
	static bool leftovers_left = false;
	TimestampTz at;

	if (!dead_left && !tokens_left && !batches_left && !leftovers_left)
	{
		dead_left = tokens_left = batches_left = leftovers_left = true; /* also if what follows fails */
		next = history_maintain(now);
	}
	if (leftovers_left)
	{
		leftovers_left = false; /* if it fails, all else goes on */
		leftovers_left = trim_leftovers();
	}
	if (dead_left)
	{
		dead_left = false;
		dead_left = trim_dead(now);
	}
	if (tokens_left)
	{
		tokens_left = false;
		at = trim_tokens(now);
		tokens_left = at <= now;
		next = tokens_left ? next : Min(next, at);
	}
	if (batches_left)
	{
		batches_left = false;
		at = batches_trim(now);
		batches_left = at <= now;
		next = batches_left ? next : Min(next, at);
	}
	return dead_left || tokens_left || batches_left || leftovers_left ? now : next;
}
