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
#include "lane.h"
#include "long_job.h"
#include "miscadmin.h"
#include "park.h"
#include "run_as.h"
#include "settings.h"
#include "statistics.h"
#include "storage/bufmgr.h"
#include "test_point.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
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
 * Counts the dead jobs of each worker and owner in a piece that are not too old. Those whose lane is gone are
 * of no worker and no owner.
 */
#define COUNT_DEAD "SELECT coalesce(worker, ''), coalesce(owner::oid, 0), count(*) FROM queue_jobs.dead_job d" \
	" LEFT JOIN queue_jobs.lane l ON l.id = d.lane" \
	" WHERE d.ctid >= $1 AND d.ctid < $2 AND keep_until > $3 GROUP BY 1, 2"

#define OF_CROWD "c.worker = coalesce(l.worker, '') AND c.owner = coalesce(l.owner::oid, 0)"

/* Reads the dead jobs of a piece, of workers and owners that have too many, each with its crowd's number. */
#define RANK_DEAD "SELECT c.number, d.finished_at, d.id FROM queue_jobs.dead_job d" \
	" LEFT JOIN queue_jobs.lane l ON l.id = d.lane" \
	" JOIN unnest($4, $5) WITH ORDINALITY AS c (worker, owner, number) ON " OF_CROWD \
	" WHERE d.ctid >= $1 AND d.ctid < $2 AND keep_until > $3"

/*
 * Returns how many jobs of a worker and owner were removed, and how many it had before the first piece if
 * there were too many; NULL: these were too old. Jobs that another transaction is just retrying are left
 * alone until the next time.
 */
#define REMOVE_DEAD "WITH crowded AS (SELECT * FROM unnest($4, $5, $6, $7, $8) AS c (worker, owner, jobs, finished_at, id))," \
	" removed AS (DELETE FROM queue_jobs.dead_job WHERE ctid = ANY (ARRAY(" \
	"  SELECT f.ctid FROM queue_jobs.dead_job f LEFT JOIN queue_jobs.lane l ON l.id = f.lane" \
	"  LEFT JOIN crowded c ON " OF_CROWD " WHERE f.ctid >= $1 AND f.ctid < $2" \
	"  AND (f.keep_until <= $3 OR (f.finished_at, f.id) <= (c.finished_at, c.id)) AND " NEEDED_BY_NONE("f.id") \
	"  FOR UPDATE OF f SKIP LOCKED)) RETURNING lane, keep_until)" \
	" SELECT coalesce(l.worker, ''), coalesce(l.owner::oid, 0), c.jobs, count(*) FROM removed r" \
	" LEFT JOIN queue_jobs.lane l ON l.id = r.lane LEFT JOIN crowded c ON r.keep_until > $3 AND " OF_CROWD \
	" GROUP BY 1, 2, 3"

typedef enum TrimPhase
{
	TRIM_REST,					/* until it is time for the next one */
	TRIM_MOVES,
	TRIM_COUNTS,
	TRIM_RANKS,
	TRIM_REMOVES
} TrimPhase;

/* By what a dead job is kept longer than others. */
typedef struct DeathPlace
{
	TimestampTz finished_at;
	int64		id;
} DeathPlace;

typedef struct CrowdKey
{
	uint64		worker;			/* lane_name_hash() */
	int64		owner;
} CrowdKey;

/* The dead jobs of a worker and owner. */
typedef struct Crowd
{
	CrowdKey	key;			/* hash key */
	char	   *worker;
	int64		jobs;
	DeathPlace *latest;			/* of the jobs seen so far those that stay, and some others */
	int64		count;
	int64		size;
} Crowd;

/* How far this process has got. */
typedef struct DeadTrim
{
	TrimPhase	phase;
	TableWalk	walk;			/* through the table of this phase */
	MemoryContext context;		/* of all below */
	HTAB	   *crowds;
	List	   *crowded;		/* those that have too many */
	Datum		columns[5];		/* of these, an array each: worker, owner, jobs, and the latest that goes */
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

/* ---- which are too many ---- */

/* Begins to count. */
static void
begin_counts(DeadTrim *trim)
{
	HASHCTL		info = {.keysize = sizeof(CrowdKey), .entrysize = sizeof(Crowd)};

	if (trim->context == NULL)
		trim->context = AllocSetContextCreate(TopMemoryContext, "queue_jobs dead jobs",
											  ALLOCSET_SMALL_SIZES);
	MemoryContextReset(trim->context);
	info.hcxt = trim->context;
	trim->crowds = hash_create("queue_jobs dead jobs of workers", 64, &info,
							   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	table_walk_begin(&trim->walk, REL_DEAD_JOB);
}

/* Counts the jobs of a piece. */
static void
count_dead(DeadTrim *trim, TimestampTz now, ItemPointer from, ItemPointer to)
{
	Oid			types[] = {TIDOID, TIDOID, TIMESTAMPTZOID};
	Datum		values[] = {PointerGetDatum(from), PointerGetDatum(to), TimestampTzGetDatum(now)};
	uint64		groups = engine_execute(COUNT_DEAD, SPI_OK_SELECT, lengthof(types), types, values, NULL);

	for (uint64 i = 0; i < groups; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	descriptor = SPI_tuptable->tupdesc;
		bool		isnull;
		char	   *worker = SPI_getvalue(row, descriptor, 1);
		CrowdKey	key = {
			lane_name_hash(worker), DatumGetObjectId(SPI_getbinval(row, descriptor, 2, &isnull))
		};
		Crowd	   *crowd = hash_search(trim->crowds, &key, HASH_FIND, NULL);

		if (crowd == NULL)
		{
			char	   *copy = MemoryContextStrdup(trim->context, worker);

			crowd = hash_search(trim->crowds, &key, HASH_ENTER, NULL);
			*crowd = (Crowd) {.key = key, .worker = copy};
		}
		crowd->jobs += DatumGetInt64(SPI_getbinval(row, descriptor, 3, &isnull));
	}
	test_point("dead_counted");
}

/* Makes one of the arrays of the crowds that have too many. */
static Datum
array_of(const Datum *values, int count, Oid type)
{
	int16		length;
	bool		by_value;
	char		alignment;

	get_typlenbyvalalign(type, &length, &by_value, &alignment);
	return PointerGetDatum(construct_array(unconstify(Datum *, values), count, type, length, by_value,
										   alignment));
}

/* Finds which workers and owners have too many. */
static void
choose_crowded(DeadTrim *trim)
{
	MemoryContext old = MemoryContextSwitchTo(trim->context);
	Datum	   *workers = palloc(Max(hash_get_num_entries(trim->crowds), 1) * sizeof(Datum));
	Datum	   *owners = palloc(Max(hash_get_num_entries(trim->crowds), 1) * sizeof(Datum));
	HASH_SEQ_STATUS status;
	Crowd	   *crowd;
	int			count = 0;

	trim->crowded = NIL;
	hash_seq_init(&status, trim->crowds);
	while ((crowd = hash_seq_search(&status)) != NULL)
	{
		if (crowd->jobs <= queue_jobs_max_dead_jobs)
			continue;
		trim->crowded = lappend(trim->crowded, crowd);
		workers[count] = CStringGetTextDatum(crowd->worker);
		owners[count++] = ObjectIdGetDatum((Oid) crowd->key.owner);
	}
	trim->columns[0] = array_of(workers, count, TEXTOID);
	trim->columns[1] = array_of(owners, count, OIDOID);
	MemoryContextSwitchTo(old);
	table_walk_begin(&trim->walk, REL_DEAD_JOB);
	if (trim->crowded == NIL)
		trim->walk.at = trim->walk.end;
}

/* The latest comes first. */
static int
compare_death_places(const void *a, const void *b)
{
	const DeathPlace *x = a;
	const DeathPlace *y = b;

	if (x->finished_at != y->finished_at)
		return x->finished_at > y->finished_at ? -1 : 1;
	return x->id > y->id ? -1 : x->id < y->id;
}

/* Sorts the deaths, and forgets all but the latest: those that stay, and the first that goes. */
static void
keep_latest(Crowd *crowd)
{
	qsort(crowd->latest, crowd->count, sizeof(DeathPlace), compare_death_places);
	crowd->count = Min(crowd->count, (int64) queue_jobs_max_dead_jobs + 1);
}

/* Notes a death, in as much memory as twice those take that stay. */
static void
add_death(Crowd *crowd, DeathPlace death, MemoryContext context)
{
	int64		most = 2 * ((int64) queue_jobs_max_dead_jobs + 1);

	if (crowd->count >= most)
		keep_latest(crowd);
	if (crowd->count >= crowd->size)
	{
		int64		size = Max(2 * crowd->size, 64);

		crowd->latest = crowd->latest == NULL
			? MemoryContextAlloc(context, size * sizeof(DeathPlace))
			: repalloc_huge(crowd->latest, size * sizeof(DeathPlace));
		crowd->size = size;		/* not before: the next piece goes on also where there was no memory */
	}
	crowd->latest[crowd->count++] = death;
}

/* Ranks the jobs of a piece among those of their workers and owners. */
static void
rank_dead(DeadTrim *trim, TimestampTz now, ItemPointer from, ItemPointer to)
{
	Oid			types[] = {TIDOID, TIDOID, TIMESTAMPTZOID, TEXTARRAYOID, OIDARRAYOID};
	Datum		values[] = {
		PointerGetDatum(from), PointerGetDatum(to), TimestampTzGetDatum(now),
		trim->columns[0], trim->columns[1]
	};
	uint64		jobs = engine_execute(RANK_DEAD, SPI_OK_SELECT, lengthof(types), types, values, NULL);

	for (uint64 i = 0; i < jobs; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	descriptor = SPI_tuptable->tupdesc;
		bool		isnull;
		int			number = (int) DatumGetInt64(SPI_getbinval(row, descriptor, 1, &isnull));
		DeathPlace	death = {
			DatumGetTimestampTz(SPI_getbinval(row, descriptor, 2, &isnull)),
			DatumGetInt64(SPI_getbinval(row, descriptor, 3, &isnull))
		};

		add_death(list_nth(trim->crowded, number - 1), death, trim->context);
	}
	test_point("dead_ranked");
}

/*
 * Finds the latest job that goes, of each worker and owner. None goes where sessions have retried enough
 * since the count.
 */
static void
choose_first_to_go(DeadTrim *trim)
{
	MemoryContext old = MemoryContextSwitchTo(trim->context);
	int			count = list_length(trim->crowded);
	Datum	   *jobs = palloc(Max(count, 1) * sizeof(Datum));
	Datum	   *times = palloc(Max(count, 1) * sizeof(Datum));
	Datum	   *ids = palloc(Max(count, 1) * sizeof(Datum));

	for (int i = 0; i < count; i++)
	{
		Crowd	   *crowd = list_nth(trim->crowded, i);
		DeathPlace	goes = {DT_NOBEGIN, 0};

		keep_latest(crowd);
		if (crowd->count > queue_jobs_max_dead_jobs)
			goes = crowd->latest[queue_jobs_max_dead_jobs];
		jobs[i] = Int64GetDatum(crowd->jobs);
		times[i] = TimestampTzGetDatum(goes.finished_at);
		ids[i] = Int64GetDatum(goes.id);
	}
	trim->columns[2] = array_of(jobs, count, INT8OID);
	trim->columns[3] = array_of(times, count, TIMESTAMPTZOID);
	trim->columns[4] = array_of(ids, count, INT8OID);
	MemoryContextSwitchTo(old);
	table_walk_begin(&trim->walk, REL_DEAD_JOB);
}

/* ---- removing them ---- */

/* Removes a piece of the dead jobs that are too old or too many; returns how many. */
static uint64
remove_dead(const DeadTrim *trim, TimestampTz now, ItemPointer from, ItemPointer to)
{
	Oid			types[] = {
		TIDOID, TIDOID, TIMESTAMPTZOID, TEXTARRAYOID, OIDARRAYOID, INT8ARRAYOID, TIMESTAMPTZARRAYOID,
		INT8ARRAYOID
	};
	Datum		values[] = {
		PointerGetDatum(from), PointerGetDatum(to), TimestampTzGetDatum(now),
		trim->columns[0], trim->columns[1], trim->columns[2], trim->columns[3], trim->columns[4]
	};
	uint64		groups = engine_execute(REMOVE_DEAD, SPI_OK_SELECT, lengthof(types), types, values, NULL);
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
			begin_counts(trim);
			trim->phase = TRIM_COUNTS;
			return 0;
		case TRIM_COUNTS:
			if (table_walk_next(&trim->walk, &from, &to))
				count_dead(trim, now, &from, &to);
			else
			{
				choose_crowded(trim);
				trim->phase = TRIM_RANKS;
			}
			return 0;
		case TRIM_RANKS:
			if (table_walk_next(&trim->walk, &from, &to))
				rank_dead(trim, now, &from, &to);
			else
			{
				choose_first_to_go(trim);
				trim->phase = TRIM_REMOVES;
			}
			return 0;
		case TRIM_REMOVES:
			if (table_walk_next(&trim->walk, &from, &to))
				return remove_dead(trim, now, &from, &to);
			MemoryContextReset(trim->context);
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
