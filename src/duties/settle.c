/*
 * settle.c
 *		What others wait for is looked at; see settle.h.
 *
 * Each look is a transaction of its own, so that one that fails harms no other, and none holds locks for
 * another.
 *
 * A job with many parents is looked at only when so many of them have ended as it waited for at the last
 * look: no sooner can it have changed. What is known of that is this process's own; after a start all are
 * looked at.
 */
#include "postgres.h"

#include "batch.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "release.h"
#include "run_as.h"
#include "settle.h"
#include "table_rows.h"
#include "utils/array.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "watch.h"

#define NEWS_AT_ONCE 1024
#define LOOK_AGAIN_AT_LOCKED INT64CONST(100000) /* microseconds */
#define LOOK_AGAIN_AT_FAILED (5 * USECS_PER_SEC)
#define EXPIRE_AGAIN_AT_LOCKED USECS_PER_SEC
#define FEW_PARENTS 4			/* with so many it is not worth remembering */
#define MOST_REMEMBERED 10000

typedef struct Unmet
{
	int64		child;			/* hash key */
	int64		ends;			/* of parents, that are to come before it is looked at */
} Unmet;

/* A look, for catalog_unit(). */
typedef struct Look
{
	int64		id;
	bool		is_batch;
	bool		locked;
	int64		unmet;
	ExpiringMembers expiring;
} Look;

/* Of a batch with members that expire. */
typedef struct NextExpiry
{
	int64		batch;
	TimestampTz at;
} NextExpiry;

/* A look that is to be made again. */
typedef struct Again
{
	int64		id;
	bool		is_batch;
	TimestampTz at;
} Again;

static HTAB *unmet_parents = NULL;
static List *again = NIL;		/* of Again *, in TopMemoryContext */
static TimestampTz all_again_at = DT_NOEND; /* everything, after a query has failed */
static bool under_way = false;	/* what was taken as news has not been looked at */
static List *expiries = NIL;	/* of NextExpiry *, likewise */
static bool expiries_known = false; /* also what the process before us knew */

static void
look(void *argument)
{
	Look	   *one = argument;

	if (one->is_batch)
		batch_look(one->id, &one->expiring);
	else
		one->unmet = release_look(one->id, &one->locked);
}

static void
remember_expiry(int64 batch, TimestampTz at)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	ListCell   *cell;
	NextExpiry *expiry;

	foreach(cell, expiries)
	{
		expiry = lfirst(cell);
		if (expiry->batch != batch)
			continue;
		expiries = foreach_delete_current(expiries, cell);
		pfree(expiry);
	}
	if (at != DT_NOEND)
	{
		expiry = palloc(sizeof(NextExpiry));
		*expiry = (NextExpiry) {.batch = batch, .at = at};
		expiries = lappend(expiries, expiry);
	}
	MemoryContextSwitchTo(old);
}

static void
expire(void *argument)
{
	Look	   *one = argument;

	one->locked = !expiry_end(one->id);
}

/* What ends by that is news. A claim that has one of them ends it, or leaves it as it is: we try again. */
static void
end_expired(ExpiringMembers *expiring)
{
	for (int i = 0; i < expiring->count; i++)
	{
		Look		one = {.id = expiring->expired[i]};

		if (!catalog_unit(expire, &one) || one.locked)
			expiring->next = Min(expiring->next, GetCurrentTimestamp() + EXPIRE_AGAIN_AT_LOCKED);
	}
}

static void
look_again(int64 id, bool is_batch, int64 after)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	Again	   *look = palloc(sizeof(Again));

	*look = (Again) {.id = id,.is_batch = is_batch,.at = GetCurrentTimestamp() + after};
	again = lappend(again, look);
	MemoryContextSwitchTo(old);
}

static void
look_at_batch(int64 id)
{
	Look		one = {.id = id,.is_batch = true,.expiring.next = DT_NOEND};

	if (catalog_unit(look, &one))
		end_expired(&one.expiring);
	else
		look_again(id, true, LOOK_AGAIN_AT_FAILED);
	remember_expiry(id, one.expiring.next);
}

/* The lowest time at which a member of some batch expires, of those that are known. */
static TimestampTz
next_expiry(void)
{
	TimestampTz next = DT_NOEND;
	ListCell   *cell;

	foreach(cell, expiries)
		next = Min(next, ((NextExpiry *) lfirst(cell))->at);
	return next;
}

static void
look_at_expired(void)
{
	TimestampTz now = GetCurrentTimestamp();
	List	   *due = NIL;
	ListCell   *cell;

	foreach(cell, expiries)
	{
		NextExpiry *expiry = lfirst(cell);

		if (expiry->at <= now)
			due = lappend(due, expiry);
	}
	foreach(cell, due)
		look_at_batch(((NextExpiry *) lfirst(cell))->batch);
}

static void
forget_unmet(void)
{
	if (unmet_parents != NULL)
		hash_destroy(unmet_parents);
	unmet_parents = NULL;
}

static void
remember_unmet(int64 child, int64 unmet)
{
	Unmet	   *entry;

	if (unmet <= FEW_PARENTS)
	{
		if (unmet_parents != NULL)
			(void) hash_search(unmet_parents, &child, HASH_REMOVE, NULL);
		return;
	}
	if (unmet_parents != NULL && hash_get_num_entries(unmet_parents) >= MOST_REMEMBERED)
		forget_unmet();
	if (unmet_parents == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(int64),.entrysize = sizeof(Unmet),.hcxt = TopMemoryContext};

		unmet_parents = hash_create("queue_jobs unmet parents", 64, &control,
									HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	entry = hash_search(unmet_parents, &child, HASH_ENTER, NULL);
	entry->ends = unmet;
}

static void
look_at_job(int64 id)
{
	Look		one = {.id = id};

	if (!catalog_unit(look, &one))
		look_again(id, false, LOOK_AGAIN_AT_FAILED);
	else if (one.locked)
		look_again(id, false, LOOK_AGAIN_AT_LOCKED);
	else
		remember_unmet(id, one.unmet);
}

/* So many of its parents have ended. */
static void
parents_ended(int64 child, int64 ended)
{
	Unmet	   *entry = unmet_parents == NULL ? NULL : hash_search(unmet_parents, &child, HASH_FIND, NULL);

	if (entry != NULL && (entry->ends -= ended) > 0)
		return;
	look_at_job(child);
}

/* ---- queries ---- */

/* One that returns ids, and how many pieces of news each is for. */
typedef struct IdQuery
{
	const char *sql;
	ArrayType  *parameter;		/* or NULL */
	MemoryContext context;
	int			count;
	struct
	{
		int64		id;
		int64		times;
	}		   *found;
} IdQuery;

static void
run_query(void *argument)
{
	IdQuery    *query = argument;
	Oid			types[] = {INT8ARRAYOID};
	Datum		values[] = {PointerGetDatum(query->parameter)};
	RunAs		saved;

	engine_begin(&saved);
	query->count = (int) (query->parameter
							  ? engine_execute_often(query->sql, SPI_OK_SELECT, 1, types, values, NULL)
							  : engine_execute(query->sql, SPI_OK_SELECT, 0, types, values, NULL));
	query->found = MemoryContextAllocHuge(query->context, sizeof(*query->found) * Max(query->count, 1));
	for (int i = 0; i < query->count; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		bool		isnull;

		query->found[i].id = DatumGetInt64(SPI_getbinval(row, SPI_tuptable->tupdesc, 1, &isnull));
		query->found[i].times = DatumGetInt64(SPI_getbinval(row, SPI_tuptable->tupdesc, 2, &isnull));
	}
	engine_end(&saved);
}

#define WAITING_JOBS "SELECT id, 0::int8 FROM queue_jobs.live_job WHERE waits IS NOT NULL"
/* One that has ended without success may have come to it since: its failed members were retried. */
#define RUNNING_BATCHES "SELECT id, 0::int8 FROM queue_jobs.tracked_batch b WHERE settled_at IS NULL OR (succeeded_at IS NULL" \
	" AND (SELECT true FROM queue_jobs.member_job m WHERE m.batch = b.id AND m.state IN ('dead', 'cancelled') LIMIT 1) IS NULL) ORDER BY id"
#define EXPIRING_BATCHES \
	"SELECT b.id, 0::int8 FROM queue_jobs.tracked_batch b WHERE b.settled_at IS NULL AND NOT b.open" \
	" AND (EXISTS (SELECT FROM queue_jobs.live_job l WHERE l.batch = b.id AND l.expires_at IS NOT NULL AND l.attempt = 0 OFFSET 0)" \
	"  OR EXISTS (SELECT FROM queue_jobs.joint_member m WHERE m.batch = b.id" \
	"   AND (SELECT l.expires_at IS NOT NULL AND l.attempt = 0 FROM queue_jobs.live_job l WHERE l.id = m.job) OFFSET 0))"
#define WATCHED_JOBS \
	"SELECT d.parent, 0::int8 FROM queue_jobs.dependency d WHERE (SELECT l.waits IS NOT NULL FROM queue_jobs.live_job l WHERE l.id = d.child)" \
	" UNION SELECT m.job, 0::int8 FROM queue_jobs.joint_member m"

#define ALL_AT_ONCE "1000000000"	/* for a child that is cancelled by the first death */

/*
 * Children, with how many of their parents have ended; and batches of which those were members for a
 * duplicate, with 0.
 */
#define DEPENDENTS \
	"SELECT d.child, CASE WHEN bool_or(d.if_dead = 'cancel' AND (SELECT m.state <> 'completed' FROM queue_jobs.member_job m WHERE m.id = d.parent LIMIT 1))" \
	"  THEN " ALL_AT_ONCE " ELSE count(*) END FROM queue_jobs.dependency d WHERE d.parent = ANY ($1) GROUP BY d.child" \
	" UNION ALL SELECT DISTINCT batch, 0::int8 FROM queue_jobs.joint_member WHERE job = ANY ($1) ORDER BY 1"

/* A query that has failed may have found anything. The log says why it has. */
static bool
find_ids(IdQuery *query)
{
	query->context = CurrentMemoryContext;
	if (catalog_unit(run_query, query))
		return true;
	all_again_at = GetCurrentTimestamp() + LOOK_AGAIN_AT_FAILED;
	return false;
}

static bool
for_each_id(const char *sql, void (*look_at) (int64))
{
	IdQuery		query = {.sql = sql};

	if (!find_ids(&query))
		return false;
	for (int i = 0; i < query.count; i++)
		look_at(query.found[i].id);
	return true;
}

/*
 * The order matters. First the watched jobs are noted: their ends are news from then on. Then the look finds
 * what had ended before.
 */
static void
look_at_everything(void)
{
	all_again_at = DT_NOEND;
	watch_begin();
	forget_unmet();
	if (!for_each_id(WATCHED_JOBS, watch_job))
		return;
	watch_known();
	(void) for_each_id(WAITING_JOBS, look_at_job);
	(void) for_each_id(RUNNING_BATCHES, look_at_batch);
}

static void
look_at_dependents(Datum *ended, int count)
{
	IdQuery		query = {
		.sql = DEPENDENTS,
		.parameter = construct_array(ended, count, INT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)
	};

	if (!find_ids(&query))
		return;
	for (int i = 0; i < query.count; i++)
	{
		if (query.found[i].times > 0)
			parents_ended(query.found[i].id, query.found[i].times);
		else
			look_at_batch(query.found[i].id);
	}
}

static void
look_at_news(const News *news, int count)
{
	Datum	   *ended = palloc(sizeof(Datum) * count);
	int			ended_count = 0;

	for (int i = 0; i < count; i++)
	{
		if (news[i].kind == NEWS_ENDED)
			ended[ended_count++] = Int64GetDatum(news[i].id);
		else if (news[i].kind == NEWS_WAITS)
			look_at_job(news[i].id);
		else
			look_at_batch(news[i].id);
	}
	if (ended_count > 0)
		look_at_dependents(ended, ended_count);
}

/* Returns when the next of them is to be made. One in the far future was before the clock was set back. */
static TimestampTz
look_again_where_due(void)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next = DT_NOEND;
	List	   *looks = again;
	ListCell   *cell;

	again = NIL;
	foreach(cell, looks)
	{
		const Again *look = lfirst(cell);

		if (look->at > now && look->at - now <= LOOK_AGAIN_AT_FAILED)
			look_again(look->id, look->is_batch, look->at - now);
		else if (look->is_batch)
			look_at_batch(look->id);
		else
			look_at_job(look->id);
	}
	list_free_deep(looks);
	foreach(cell, again)
		next = Min(next, ((Again *) lfirst(cell))->at);
	return next;
}

static void
look_at_all_news(void)
{
	News	   *news = palloc(sizeof(News) * NEWS_AT_ONCE);
	TimestampTz now = GetCurrentTimestamp();
	bool		all;
	int			count;

	if (all_again_at != DT_NOEND && (all_again_at <= now || all_again_at - now > LOOK_AGAIN_AT_FAILED))
		look_at_everything();
	if (!expiries_known)
		expiries_known = for_each_id(EXPIRING_BATCHES, look_at_batch);
	look_at_expired();
	while (all_again_at == DT_NOEND && ((count = watch_take(news, NEWS_AT_ONCE, &all)) > 0 || all))
	{
		CHECK_FOR_INTERRUPTS();
		if (all)
			look_at_everything();
		else
			look_at_news(news, count);
	}
}

TimestampTz
settle_news(void)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs news",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	TimestampTz next;

	if (under_way)				/* an error has ended the latest call */
		watch_lose_all();
	under_way = true;
	next = look_again_where_due();
	look_at_all_news();
	under_way = false;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return Min(next, Min(next_expiry(), all_again_at));
}

bool
settle_leave(void)
{
	if (!under_way && again == NIL && all_again_at == DT_NOEND)
		return false;
	watch_lose_all();
	return true;
}

/* ---- without the scheduler ---- */

static void
look_and_expire(int64 batch)
{
	ExpiringMembers expiring;

	batch_look(batch, &expiring);
	for (int i = 0; i < expiring.count; i++)
		(void) expiry_end(expiring.expired[i]);
}

static void
look_once(const char *sql, bool batches)
{
	IdQuery		query = {.sql = sql,.context = CurrentMemoryContext};
	bool		locked;

	run_query(&query);
	for (int i = 0; i < query.count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (batches)
			look_and_expire(query.found[i].id);
		else
			(void) release_look(query.found[i].id, &locked);
	}
}

/* Nothing is looked at where there has never been a batch, dependency or signal. */
void
settle_everything(void)
{
	if (!table_has_no_rows(REL_TRACKED_BATCH))
		look_once(RUNNING_BATCHES, true);
	if (table_has_no_rows(REL_DEPENDENCY) && table_has_no_rows(REL_JOB_SIGNAL))
		return;
	look_once(WAITING_JOBS, false);
	if (!table_has_no_rows(REL_TRACKED_BATCH))
		look_once(RUNNING_BATCHES, true);
}
