/*
 * act_on_news.c
 *		Looks at batches and jobs for which something has come; see act_on_news.h.
 *
 * Each look is a transaction of its own: a look that fails harms no other, and none runs under the locks of
 * another. The list of what is pending is in this process's memory (pending.h): when the process ends with
 * entries left, the next scheduler looks at everything.
 *
 * A look at a job with many parents finds how many of them must end before the job can go on. The scheduler
 * counts their ends, and does not look again before the last of these. The counts are in this process's
 * memory, too: after a start the scheduler looks at all jobs that wait.
 */
#include "postgres.h"

#include "act_on_news.h"
#include "batch.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "end_news.h"
#include "exclusive_commands.h"
#include "executor/spi.h"
#include "job.h"
#include "miscadmin.h"
#include "pending.h"
#include "release.h"
#include "run_as.h"
#include "shared.h"
#include "test_point.h"
#include "utils/array.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define PIECE_OF_TIME INT64CONST(25000) /* microseconds, after which other duties have their turn */
#define PIECE_OF_CALL INT64CONST(100000)	/* microseconds of a claim, without a scheduler */
#define NEWS_AT_ONCE 256
#define ENDED_AT_ONCE 64
#define FEW_DEPENDENTS 16
#define DEPENDENTS_AT_ONCE 128
#define LOOK_AGAIN_AT_LOCKED INT64CONST(100000) /* microseconds */
#define LOOK_AGAIN_AT_FAILED (5 * USECS_PER_SEC)
#define EXPIRE_AGAIN_AT_LOCKED USECS_PER_SEC
#define FEW_PARENTS 4			/* with so many it is not worth remembering */
#define MOST_REMEMBERED 10000
#define MOST_EXPIRIES 65536

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
	bool		signalled;
	bool		locked;
	int64		unmet;
	TimestampTz expires_at;		/* of a job; DT_NOEND: nothing is to be done then */
	ExpiringMembers expiring;
} Look;

/* The next expiry of a batch's member, or of a job without a batch that has an on_expired. */
typedef struct NextExpiry
{
	int64		id;				/* hash key: the batch, or below zero the job */
	Oid			role;			/* the role in whose turn the last look was */
	TimestampTz at;
} NextExpiry;

static HTAB *unmet_parents = NULL;
static HTAB *expiries = NULL;	/* NextExpiry, by id */
static TimestampTz next_expiry = DT_NOEND;	/* no entry of "expiries" is sooner */
static TimestampTz find_expiring_at = DT_NOBEGIN;	/* reads all that expire; also at the start */
static TimestampTz all_again_at = DT_NOEND; /* everything, after a query has failed */
static bool missed = false;		/* some news found no room, or was lost */
static bool under_way = false;	/* what was taken as news has not been looked at */

/* ---- one look ---- */

/* Looks at a batch or a waiting job, in a transaction of its own. */
static void
look_protected(void *argument)
{
	Look	   *one = argument;

	if (one->is_batch)
		batch_look(one->id, &one->expiring);
	else
		one->unmet = release_look(one->id, one->signalled, &one->locked, &one->expires_at);
	test_point("looks");
}

/*
 * Remembers when the job, or a member of the batch, expires next. Without room, a query finds all of them by
 * then.
 */
static void
remember_expiry(int64 id, Oid role, TimestampTz at)
{
	NextExpiry *expiry;

	if (expiries == NULL)
	{
		HASHCTL		control = {
			.keysize = sizeof(int64), .entrysize = sizeof(NextExpiry), .hcxt = TopMemoryContext
		};

		expiries = hash_create("queue_jobs expiries", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	if (at == DT_NOEND)
	{
		(void) hash_search(expiries, &id, HASH_REMOVE, NULL);
		return;
	}
	expiry = hash_search(expiries, &id,
						 hash_get_num_entries(expiries) < MOST_EXPIRIES ? HASH_ENTER : HASH_FIND, NULL);
	if (expiry == NULL)
	{
		at = Max(at, GetCurrentTimestamp() + EXPIRE_AGAIN_AT_LOCKED);
		find_expiring_at = Min(find_expiring_at, at);
		return;
	}
	expiry->role = role;
	expiry->at = at;
	next_expiry = Min(next_expiry, at);
}

/* Ends a member that has expired, in a transaction of its own. */
static void
expire(void *argument)
{
	Look	   *one = argument;

	one->locked = !expiry_end(one->id);
}

/*
 * Ends the members that have expired; their ends are news, too. A claim that has one of them ends it, or
 * leaves it as it is, and then we try again.
 */
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

/* Looks at a batch, and ends members that have expired. A look that fails is tried again later. */
static void
look_at_batch(const Pending *pending)
{
	Look		one = {.id = pending->key.id, .is_batch = true, .expiring.next = DT_NOEND};

	if (catalog_unit(look_protected, &one))
		end_expired(&one.expiring);
	else
		pending_put_off(pending, LOOK_AGAIN_AT_FAILED);
	remember_expiry(one.id, pending->key.role, one.expiring.next);
}

/* Makes jobs that expire now pending, and batches with such members. */
static void
look_at_expired(void)
{
	TimestampTz now = GetCurrentTimestamp();
	HASH_SEQ_STATUS scan;
	NextExpiry *expiry;

	if (find_expiring_at <= now)
	{
		find_expiring_at = DT_NOEND;
		look_all_find_expiring();
	}
	if (next_expiry > now)
		return;
	next_expiry = DT_NOEND;
	hash_seq_init(&scan, expiries);
	while ((expiry = hash_seq_search(&scan)) != NULL)
	{
		PendingKind kind = expiry->id < 0 ? PENDING_JOB : PENDING_BATCH;
		int64		id = expiry->id < 0 ? -expiry->id : expiry->id;

		if (expiry->at <= now && pending_add(expiry->role, kind, id) == NULL)
			expiry->at = now + EXPIRE_AGAIN_AT_LOCKED;
		if (expiry->at > now)
			next_expiry = Min(next_expiry, expiry->at);
		else
			(void) hash_search(expiries, &expiry->id, HASH_REMOVE, NULL);
	}
}

/* Forgets how many parents children wait for. */
static void
forget_unmet(void)
{
	if (unmet_parents != NULL)
		hash_destroy(unmet_parents);
	unmet_parents = NULL;
}

/* Remembers a child that waits for many parents, so that it is not looked at for each of them. */
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
		HASHCTL		control = {.keysize = sizeof(int64), .entrysize = sizeof(Unmet),
		.hcxt = TopMemoryContext};

		unmet_parents = hash_create("queue_jobs unmet parents", 64, &control,
									HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	entry = hash_search(unmet_parents, &child, HASH_ENTER, NULL);
	entry->ends = unmet;
}

/* Looks at a job that waits, or expires. A look that fails, or finds the row locked, is tried again later. */
static void
look_at_job(const Pending *pending)
{
	Look		one = {.id = pending->key.id, .signalled = pending->key.kind == PENDING_SIGNALLED};

	if (!catalog_unit(look_protected, &one))
		pending_put_off(pending, LOOK_AGAIN_AT_FAILED);
	else if (one.locked)
		pending_put_off(pending, LOOK_AGAIN_AT_LOCKED);
	else
	{
		if (!one.signalled)
			remember_unmet(one.id, one.unmet);
		if (one.expires_at != DT_NOEND)
			remember_expiry(-one.id, pending->key.role, one.expires_at);
	}
}

/* ---- what waits for a job that has ended ---- */

/* A child of a job that has ended, or a batch with that job as a member. */
typedef struct Dependent
{
	int64		parent;
	int64		id;
	int64		ends;			/* parents that count as ended by this end; 0: it is a batch */
	int64		siblings;		/* the parent has so many of this kind, or more if FEW_DEPENDENTS */
} Dependent;

typedef struct Dependents
{
	const char *sql;
	Oid			type;
	Datum		ended;
	int64		after[2];
	MemoryContext context;
	int			count;
	Dependent  *found;
} Dependents;

#define ALL_AT_ONCE "1000000000"	/* parents; the first death cancels the child */

#define CHILDREN(parent) \
	"SELECT d.child AS id, CASE WHEN d.if_dead = 'cancel' AND (SELECT m.state <> 'completed' FROM queue_jobs.member_job m WHERE m.id = d.parent LIMIT 1)" \
	"  THEN " ALL_AT_ONCE "::int8 ELSE 1 END AS ends FROM queue_jobs.dependency d WHERE d.parent = " parent
#define JOINT_BATCHES(job) \
	"SELECT m.batch AS id, 0::int8 AS ends FROM queue_jobs.joint_member m WHERE m.job = " job
#define COUNTED(rows, order) \
	"SELECT r.*, count(*) OVER () AS siblings FROM (" rows " ORDER BY " order \
	" LIMIT " CppAsString2(FEW_DEPENDENTS) ") r"

/* The first few dependents of each of several jobs. */
#define FEW \
	"SELECT p.id, f.id, f.ends, f.siblings FROM unnest($1) p (id)" \
	" CROSS JOIN LATERAL (" COUNTED(CHILDREN("p.id"), "d.child") ") f" \
	" UNION ALL SELECT p.id, f.id, f.ends, f.siblings FROM unnest($1) p (id)" \
	" CROSS JOIN LATERAL (" COUNTED(JOINT_BATCHES("p.id"), "m.batch") ") f"
/* The next dependents of one job. */
#define NEXT \
	"(SELECT $1, c.id, c.ends, 0::int8 FROM (" CHILDREN("$1") " AND d.child > $2 ORDER BY d.child" \
	" LIMIT " CppAsString2(DEPENDENTS_AT_ONCE) ") c)" \
	" UNION ALL (SELECT $1, b.id, b.ends, 0::int8" \
	" FROM (" JOINT_BATCHES("$1") " AND m.batch > $3 ORDER BY m.batch" \
	" LIMIT " CppAsString2(DEPENDENTS_AT_ONCE) ") b)"

/* Reads jobs that wait for ended ones, and the lanes that they belong to. */
static void
read_dependents(void *argument)
{
	Dependents *dependents = argument;
	Oid			types[] = {dependents->type, INT8OID, INT8OID};
	Datum		values[] = {dependents->ended, Int64GetDatum(dependents->after[0]),
							Int64GetDatum(dependents->after[1])};
	RunAs		saved;

	engine_begin(&saved);
	dependents->count = (int) engine_execute_often(dependents->sql, SPI_OK_SELECT, lengthof(types), types,
												   values, NULL);
	dependents->found = MemoryContextAlloc(dependents->context,
										   sizeof(Dependent) * Max(dependents->count, 1));
	for (int i = 0; i < dependents->count; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	descriptor = SPI_tuptable->tupdesc;
		bool		isnull;

		dependents->found[i].parent = DatumGetInt64(SPI_getbinval(row, descriptor, 1, &isnull));
		dependents->found[i].id = DatumGetInt64(SPI_getbinval(row, descriptor, 2, &isnull));
		dependents->found[i].ends = DatumGetInt64(SPI_getbinval(row, descriptor, 3, &isnull));
		dependents->found[i].siblings = DatumGetInt64(SPI_getbinval(row, descriptor, 4, &isnull));
	}
	engine_end(&saved);
}

/* A query that has failed may have found anything. The log says why it has. */
static bool
find_dependents(Dependents *dependents)
{
	dependents->context = CurrentMemoryContext;
	if (catalog_unit(read_dependents, dependents))
		return true;
	all_again_at = GetCurrentTimestamp() + LOOK_AGAIN_AT_FAILED;
	return false;
}

/* Makes the dependent pending, unless more of its parents must end first. False: there is no room. */
static bool
add_dependent(Oid role, const Dependent *dependent)
{
	Unmet	   *entry;

	if (dependent->ends == 0)
		return pending_add(role, PENDING_BATCH, dependent->id) != NULL;
	entry = unmet_parents == NULL ? NULL : hash_search(unmet_parents, &dependent->id, HASH_FIND, NULL);
	if (entry != NULL && entry->ends > dependent->ends)
	{
		entry->ends -= dependent->ends;
		return true;
	}
	return pending_add(role, PENDING_JOB, dependent->id) != NULL;
}

/*
 * Makes dependents of one job pending, from the place at which the room or the rows of the last call ended.
 */
static void
look_at_many(Pending *pending)
{
	Dependents	dependents = {
		.sql = NEXT, .type = INT8OID, .ended = Int64GetDatum(pending->key.id),
		.after = {pending->after[0], pending->after[1]}
	};
	int			counts[2] = {0, 0};
	bool		room = true;

	if (!find_dependents(&dependents))
		return;
	for (int i = 0; i < dependents.count && room; i++)
	{
		int			which = dependents.found[i].ends == 0;

		room = add_dependent(pending->key.role, &dependents.found[i]);
		if (!room)
			break;
		counts[which]++;
		pending->after[which] = dependents.found[i].id;
	}
	if (!room || counts[0] == DEPENDENTS_AT_ONCE || counts[1] == DEPENDENTS_AT_ONCE)
		pending_put_back(pending);
}

/* Looks for the jobs that wait for a few ended ones, some of which may have ended at once. */
static void
look_at_few(const Pending *pending)
{
	Datum		ended[ENDED_AT_ONCE];
	int			count = 0;
	Pending		more = *pending;
	Dependents	dependents = {.sql = FEW, .type = INT8ARRAYOID};

	do
		ended[count++] = Int64GetDatum(more.key.id);
	while (count < ENDED_AT_ONCE && pending_take_more(pending, PENDING_ENDED, &more));
	dependents.ended = PointerGetDatum(
		construct_array(ended, count, INT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	if (!find_dependents(&dependents))
		return;
	for (int i = 0; i < dependents.count; i++)
	{
		const Dependent *dependent = &dependents.found[i];

		if (dependent->siblings < FEW_DEPENDENTS)
			missed = !add_dependent(pending->key.role, dependent) || missed;
		else
			missed = pending_add(pending->key.role, PENDING_MANY, dependent->parent) == NULL || missed;
	}
}

/* ---- in turns ---- */

/* Looks at what is next. */
static void
look_at(Pending *pending)
{
	switch (pending->key.kind)
	{
		case PENDING_BATCH:
			look_at_batch(pending);
			break;
		case PENDING_JOB:
		case PENDING_SIGNALLED:
			look_at_job(pending);
			break;
		case PENDING_ENDED:
			look_at_few(pending);
			break;
		case PENDING_MANY:
			look_at_many(pending);
			break;
	}
}

/* The role whose turn it is pays with its time for a look, and for the looks that follow from it. */
static bool
look_at_next(void)
{
	int64		start = clock_elapsed();
	Pending		pending;

	if (!pending_take(&pending))
		return false;
	news_act_for(pending.key.role);
	look_at(&pending);
	news_act_for(InvalidOid);
	pending_charge(pending.key.role, clock_elapsed() - start);
	return true;
}

/* Returns what to do for a piece of news. */
static PendingKind
pending_kind(const News *news)
{
	switch (news->kind)
	{
		case NEWS_ENDED:
			return PENDING_ENDED;
		case NEWS_WAITS:
			return PENDING_JOB;
		case NEWS_SIGNAL:
			return PENDING_SIGNALLED;
		default:
			return PENDING_BATCH;
	}
}

/* Takes the news. There may be more than there is room for: then all is looked for again. */
static void
fetch_news(void)
{
	News		news[NEWS_AT_ONCE];
	bool		lost;
	int			count;

	do
	{
		count = news_take(news, NEWS_AT_ONCE, &lost);
		for (int i = 0; i < count; i++)
			if (pending_add(news[i].role, pending_kind(&news[i]), news[i].id) == NULL)
				missed = true;
	} while (count == NEWS_AT_ONCE);
	missed = missed || lost;
}

/* Begins to look at everything after news was missed or a query failed, once an earlier such search ends. */
static void
begin_everything(void)
{
	TimestampTz now = GetCurrentTimestamp();

	if (all_again_at != DT_NOEND && (all_again_at <= now || all_again_at - now > LOOK_AGAIN_AT_FAILED))
	{
		missed = true;
		all_again_at = DT_NOEND;
	}
	if (!missed || !look_all_may_begin())
		return;
	missed = false;
	news_filter_begin();
	forget_unmet();
	look_all_begin();
	look_all_find_expiring();
}

/*
 * Takes one look, and one step of the search for everything: neither kind of work waits until the other is
 * through. False: there is nothing to do now.
 */
static bool
step(void)
{
	bool		looked;
	bool		read;

	fetch_news();
	begin_everything();
	look_at_expired();
	pending_resume();
	looked = look_at_next();
	read = look_all_step();
	return looked || read;
}

TimestampTz
act_on_news(void)
{
	int64		end = clock_elapsed() + PIECE_OF_TIME;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "queue_jobs news",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	bool		more;

	missed = missed || under_way;	/* an error has ended the latest call */
	under_way = true;
	news_act_for(InvalidOid);
	test_point("settles");
	while ((more = step()) && clock_elapsed() < end && !exclusive_command_waits(MyDatabaseId))
	{
		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(context);
	}
	under_way = false;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	if (more)
		return GetCurrentTimestamp();
	return Min(Min(pending_next(), next_expiry), Min(Min(find_expiring_at, all_again_at), look_all_next()));
}

bool
act_on_news_leave(void)
{
	if (!under_way && !missed && !pending_any() && look_all_done() && all_again_at == DT_NOEND)
		return false;
	news_lose_all();
	return true;
}

/* ---- without the scheduler ---- */

/* A walk around all batches, or all waiting jobs. Each call looks at some, and the next goes on there. */
typedef struct Round
{
	bool		batches;
	const char *last_id;		/* query: the highest id there has been */
	bool		begun;
	int64		after;
} Round;

/* Looks at a batch, and ends members that have expired, in the caller's transaction. */
static void
look_and_expire(int64 batch)
{
	ExpiringMembers expiring;

	batch_look(batch, &expiring);
	for (int i = 0; i < expiring.count; i++)
		(void) expiry_end(expiring.expired[i]);
}

/* A session's first call begins anywhere, so that many sessions that call only once see everything. */
static void
begin_round(Round *round)
{
	if (!round->begun)
		round->after = (int64) (pg_prng_double(&pg_global_prng_state) *
								engine_select_id(round->last_id, 0, NULL, NULL));
	round->begun = true;
}

/* Looks from where the session's last call stopped, round to there again, unless the time is over before. */
static void
look_round(Round *round, int64 end)
{
	int64		ids[IDS_AT_ONCE];
	bool		over = false;
	bool		locked;
	TimestampTz expires_at;
	int64		until;

	begin_round(round);
	until = round->after;
	for (int rounds = 0; rounds < 2 && !over;)
	{
		int64		after = round->after;
		bool		last;
		int			count = look_all_read(round->batches, &after, ids, &last);

		for (int i = 0; i < count && !over; i++)
		{
			CHECK_FOR_INTERRUPTS();
			if (rounds == 1 && ids[i] > until)
				return;
			if (round->batches)
				look_and_expire(ids[i]);
			else
				(void) release_look(ids[i], false, &locked, &expires_at);
			round->after = ids[i];
			over = clock_elapsed() >= end;
		}
		if (over)
			break;
		round->after = last ? 0 : after;
		rounds += last;
	}
}

/* Nothing is looked at where there has never been a batch, dependency or signal. */
void
act_on_everything(void)
{
	static Round batches = {.batches = true, .last_id = "SELECT last_value FROM queue_jobs.batch_id"};
	static Round jobs = {.last_id = "SELECT last_value FROM queue_jobs.job_id"};
	int64		end = clock_elapsed() + PIECE_OF_CALL;

	if (!table_has_no_rows(REL_TRACKED_BATCH))
		look_round(&batches, end);
	if (table_has_no_rows(REL_DEPENDENCY) && table_has_no_rows(REL_JOB_SIGNAL))
		return;
	look_round(&jobs, end);
	if (!table_has_no_rows(REL_TRACKED_BATCH))
		look_round(&batches, end);
}

/* ---- in the transaction that has noted the news ---- */

/* Looks at a job that may wait no longer. */
static void
look_at_waiting(int64 job, bool signalled)
{
	bool		locked;
	TimestampTz expires_at;

	CommandCounterIncrement();
	(void) release_look(job, signalled, &locked, &expires_at);
}

/* Looks at a batch in whose rows this transaction may have written. */
static void
look_at_written(int64 batch)
{
	CommandCounterIncrement();
	look_and_expire(batch);
}

/* Looks at all jobs that wait for the one that has ended, and at batches of which it is a member, too. */
static void
look_at_dependents(int64 ended)
{
	Dependents	dependents = {
		.sql = NEXT, .type = INT8OID, .ended = Int64GetDatum(ended), .context = CurrentMemoryContext
	};

	do
	{
		CHECK_FOR_INTERRUPTS();
		CommandCounterIncrement();
		read_dependents(&dependents);
		for (int i = 0; i < dependents.count; i++)
		{
			const Dependent *found = &dependents.found[i];
			int			which = found->ends == 0;

			dependents.after[which] = found->id;
			if (which)
				look_at_written(found->id);
			else
				look_at_waiting(found->id, false);
		}
	} while (dependents.count >= DEPENDENTS_AT_ONCE);
}

void
act_on_noted(int *number)
{
	const News *next;

	*number = Max(*number - 1, 0);	/* more of its kind may have come */
	while ((next = news_noted(number)) != NULL)
	{
		News		news = *next;

		CHECK_FOR_INTERRUPTS();
		switch (news.kind)
		{
			case NEWS_BATCH:
			case NEWS_JOINED:
			case NEWS_MEMBERS:
				look_at_written(news.id);
				break;
			case NEWS_ENDED:
				look_at_dependents(news.id);
				break;
			case NEWS_WAITS:
			case NEWS_SIGNAL:
				look_at_waiting(news.id, news.kind == NEWS_SIGNAL);
				break;
			case NEWS_OVER:
				break;
		}
	}
	if (!shared_present())
		act_on_everything();	/* nothing is noted */
}
