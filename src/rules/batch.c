/*
 * batch.c
 *		Batches; see batch.h.
 */
#include "postgres.h"

#include "batch.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "end_news.h"
#include "executor/spi.h"
#include "history.h"
#include "job.h"
#include "new_job.h"
#include "run_as.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/snapmgr.h"

#define NOT_BEFORE_CLOSED (PG_INT64_MAX / 2)	/* ends of members that are news, while the batch is open */
#define TRIM_AT_ONCE 2000
#define TRIM_EVERY (10 * USECS_PER_MINUTE)
#define TRIM_FOR INT64CONST(25000)	/* microseconds at once */
#define TRIM_PAUSE 20			/* times as long as the latest round took */

/* Returns a text, or null. */
static Datum
text_datum(const char *text, char *is_null)
{
	*is_null = text == NULL ? 'n' : ' ';
	return text ? CStringGetTextDatum(text) : (Datum) 0;
}

/* ---- making one ---- */

#define INSERT_BATCH \
	"INSERT INTO queue_jobs.tracked_batch (id, name, owner, parent, step_of, workflow, dedup_key, on_success, on_ended, on_dead," \
	" args, keep, open, context, created_at)" \
	" VALUES ($1, $2, $3, nullif($4, 0), nullif($5, 0), $6, $7, $8, $9, $10, $11, $12, $13, $14, clock_timestamp()) ON CONFLICT DO NOTHING"

/* Inserts the row of a batch; false if one of its key is there already. */
static bool
insert_batch(int64 id, const BatchDefinition *definition, Oid owner)
{
	Oid			types[] = {INT8OID, TEXTOID, REGROLEOID, INT8OID, INT8OID, BOOLOID, TEXTOID, TEXTOID,
						   TEXTOID, TEXTOID, JSONBOID, INTERVALOID, BOOLOID, JSONBOID};
	char		nulls[lengthof(types) + 1] = "              ";
	Datum		values[lengthof(types)];

	values[0] = Int64GetDatum(id);
	values[1] = text_datum(definition->name, &nulls[1]);
	values[2] = ObjectIdGetDatum(owner);
	values[3] = Int64GetDatum(definition->parent);
	values[4] = Int64GetDatum(definition->step_of);
	values[5] = BoolGetDatum(definition->workflow);
	values[6] = text_datum(definition->dedup_key, &nulls[6]);
	values[7] = text_datum(definition->on_success, &nulls[7]);
	values[8] = text_datum(definition->on_ended, &nulls[8]);
	values[9] = text_datum(definition->on_dead, &nulls[9]);
	values[10] = JsonbPGetDatum(definition->args);
	values[11] = IntervalPGetDatum(definition->keep);
	values[12] = BoolGetDatum(definition->open);
	values[13] = JsonbPGetDatum(definition->context);
	if (definition->context == NULL)
		nulls[13] = 'n';
	return engine_statement_often(INSERT_BATCH, SPI_OK_INSERT, lengthof(types), types, values, nulls) > 0;
}

/* Returns the batch of that key and name that has not ended, or 0. */
static int64
find_standing(const BatchDefinition *definition, Oid owner)
{
	Oid			types[] = {REGROLEOID, TEXTOID, TEXTOID};
	Datum		values[] = {ObjectIdGetDatum(owner), CStringGetTextDatum(definition->dedup_key),
							CStringGetTextDatum(definition->name)};

	return engine_select_id("SELECT id FROM queue_jobs.tracked_batch WHERE owner = $1 AND dedup_key = $2 AND name = $3 AND ended_at IS NULL",
							lengthof(types), types, values);
}

/*
 * If two transactions make a batch of the same key, the second waits for the first. In REPEATABLE READ the
 * batch that stands may be out of its sight: then it fails as any other transaction that comes too late.
 */
int64
batch_make(const BatchDefinition *definition, Oid owner, bool *standing)
{
	int64		id;

	for (int tries = 0; tries < 3; tries++)
	{
		*standing = definition->dedup_key != NULL && (id = find_standing(definition, owner)) != 0;
		if (*standing)
			return id;
		id = nextval_internal(catalog_relation(REL_BATCH_ID), false);
		if (insert_batch(id, definition, owner))
		{
			news_note(NEWS_BATCH, id);
			return id;
		}
		CommandCounterIncrement();
	}
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not make the batch because of a concurrent one of the same key"),
			 errhint("Try the transaction again.")));
}

/* Returns the batch that a step has made, or 0. */
static int64
find_step_batch(int64 step)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(step)};

	return engine_select_id("SELECT id FROM queue_jobs.tracked_batch WHERE step_of = $1", 1, types, values);
}

int64
batch_of_run(const Job *job, Oid owner)
{
	Interval	keep = {.time = 24 * USECS_PER_HOUR};
	BatchDefinition definition = {.name = job->step, .parent = job->batch, .step_of = job->id, .keep = &keep};
	bool		standing;
	int64		id;

	if (job->callback)
		return 0;
	if (job->step == NULL)
		return job->batch;
	id = find_step_batch(job->id);
	if (id != 0)
		return id;
	definition.args = jsonb_parse("{}");
	return batch_make(&definition, owner, &standing);
}

/* ---- looking ---- */

/* The row of a batch, and what a look has found of its members. */
typedef struct BatchState
{
	Oid			owner;
	int64		parent;
	int64		step_of;
	char	   *on_success;
	char	   *on_ended;
	char	   *on_dead;
	Jsonb	   *args;
	Jsonb	   *context;		/* the callbacks' context, or NULL */
	bool		open;
	bool		died;
	bool		has_ended;
	bool		has_succeeded;
	bool		settled;
	/* members that live, or fewer than that, but 0 only if there are none; open: not looked at */
	int64		remaining;
	int64		children;		/* batches of which it is the parent, and which have not settled */
	bool		callbacks;		/* one of its callbacks lives */
	int64		dead_job;		/* one that is dead, or was before it went on; 0: none */
	bool		all_completed;
} BatchState;

#define LOCK_BATCH \
	"SELECT owner, parent, step_of, on_success, on_ended, on_dead, args, open, died_at IS NOT NULL, ended_at IS NOT NULL," \
	" succeeded_at IS NOT NULL, settled_at IS NOT NULL, context, dead_job FROM queue_jobs.tracked_batch WHERE id = $1 FOR UPDATE SKIP LOCKED"

/* Members that are such for a duplicate are of no other batch's rows, or of another's. */
#define JOINT_STATE \
	"coalesce((SELECT f.state FROM queue_jobs.member_job f WHERE f.id = m.job LIMIT 1)," \
	" (SELECT f.state FROM queue_jobs.finished_job f WHERE f.id = m.job ORDER BY f.finished_at DESC LIMIT 1), 'completed')"

/*
 * A dead one, and whether all are completed. That is asked once none of them lives: of each live job a look
 * into all partitions of finished jobs would find nothing.
 */
#define LOOK_AT_JOINT_MEMBERS \
	"SELECT (SELECT m.job FROM queue_jobs.joint_member m WHERE m.batch = $1 AND (SELECT true FROM queue_jobs.live_job l WHERE l.id = m.job) IS NULL" \
	"  AND " JOINT_STATE " = 'dead' LIMIT 1)," \
	" CASE WHEN $2 THEN NOT EXISTS (SELECT FROM queue_jobs.joint_member m WHERE m.batch = $1 AND " JOINT_STATE " <> 'completed') ELSE false END"
/* Joint members that expire unless they are started, the next ones first; a job may be there twice. */
#define EXPIRING_JOINT_MEMBERS \
	"SELECT e.job, e.at FROM (SELECT m.job, (SELECT l.expires_at FROM queue_jobs.live_job l WHERE l.id = m.job AND l.attempt = 0) AS at" \
	"  FROM queue_jobs.joint_member m WHERE m.batch = $1) e WHERE e.at IS NOT NULL ORDER BY e.at LIMIT " CppAsString2(EXPIRED_AT_ONCE)
#define LOOK_AT_MEMBERS \
	"SELECT (SELECT count(*) FROM queue_jobs.joint_member m WHERE m.batch = $1 AND (SELECT true FROM queue_jobs.live_job l WHERE l.id = m.job))," \
	" (SELECT count(*) FROM queue_jobs.tracked_batch WHERE parent = $1 AND settled_at IS NULL)," \
	" coalesce((SELECT id FROM queue_jobs.member_job WHERE batch = $1 AND state = 'dead' ORDER BY finished_at LIMIT 1)," \
	"  (SELECT dead_job FROM queue_jobs.tracked_batch WHERE parent = $1 AND dead_job IS NOT NULL ORDER BY died_at LIMIT 1))," \
	" NOT EXISTS (SELECT FROM queue_jobs.member_job WHERE batch = $1 AND state IN ('dead', 'cancelled'))" \
	" AND NOT EXISTS (SELECT FROM queue_jobs.tracked_batch WHERE parent = $1 AND succeeded_at IS NULL)," \
	" EXISTS (SELECT FROM queue_jobs.joint_member WHERE batch = $1)"

/* Locks the row of a batch, and reads it; false if it is gone or locked. */
static bool
lock_batch(int64 batch, BatchState *state, MemoryContext context)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(batch)};
	HeapTuple	row;
	TupleDesc	descriptor;
	MemoryContext spi;
	Datum		value;
	bool		isnull;

#define VALUE(n) SPI_getbinval(row, descriptor, n, &isnull)
	if (engine_execute_often(LOCK_BATCH, SPI_OK_SELECT, 1, types, values, NULL) == 0)
		return false;
	row = SPI_tuptable->vals[0];
	descriptor = SPI_tuptable->tupdesc;
	spi = MemoryContextSwitchTo(context);
	state->owner = DatumGetObjectId(VALUE(1));
	value = VALUE(2);
	state->parent = isnull ? 0 : DatumGetInt64(value);
	value = VALUE(3);
	state->step_of = isnull ? 0 : DatumGetInt64(value);
	state->on_success = SPI_getvalue(row, descriptor, 4);
	state->on_ended = SPI_getvalue(row, descriptor, 5);
	state->on_dead = SPI_getvalue(row, descriptor, 6);
	state->args = DatumGetJsonbPCopy(VALUE(7));
	state->open = DatumGetBool(VALUE(8));
	state->died = DatumGetBool(VALUE(9));
	state->has_ended = DatumGetBool(VALUE(10));
	state->has_succeeded = DatumGetBool(VALUE(11));
	state->settled = DatumGetBool(VALUE(12));
	value = VALUE(13);
	state->context = isnull ? NULL : DatumGetJsonbPCopy(value);
	value = VALUE(14);
	state->dead_job = isnull ? 0 : DatumGetInt64(value);
	MemoryContextSwitchTo(spi);
	return true;
}

/* That an open batch has live members makes no difference. */
static void
look_at_live_members(int64 batch, BatchState *state, Snapshot snapshot, ExpiringMembers *expiring)
{
	LiveTable	table;
	LiveMembers members;

	if (state->open)
		return;
	live_open_to_read(&table);
	members = live_members(&table, batch, snapshot, expiring);
	live_close(&table);
	state->remaining += members.count;
	state->callbacks = members.callbacks;
}

/*
 * Looks at joint members that expire. They may expire where no claim meets them, while their own batches,
 * if they have any, are open.
 */
static void
look_at_expiring_joint_members(int64 batch, Snapshot snapshot, ExpiringMembers *expiring)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(batch)};
	uint64		rows = engine_select(EXPIRING_JOINT_MEMBERS, snapshot, 1, types, values);
	TimestampTz now = GetCurrentTimestamp();

	for (uint64 i = 0; i < rows; i++)
	{
		bool		isnull;
		int64		job = DatumGetInt64(
			SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull));

		expiring_note(expiring, job,
					  DatumGetTimestampTz(
						  SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 2, &isnull)),
					  now);
	}
}

/* Looks at jobs that are members for a duplicate. */
static void
look_at_joint_members(int64 batch, BatchState *state, Snapshot snapshot, ExpiringMembers *expiring)
{
	Oid			types[] = {INT8OID, BOOLOID};
	Datum		values[] = {Int64GetDatum(batch), BoolGetDatum(state->remaining == 0)};
	Datum		value;
	bool		isnull;

	(void) engine_select(LOOK_AT_JOINT_MEMBERS, snapshot, lengthof(types), types, values);
	value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	if (state->dead_job == 0 && !isnull)
		state->dead_job = DatumGetInt64(value);
	if (!DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull)))
		state->all_completed = false;
	if (!state->open)
		look_at_expiring_joint_members(batch, snapshot, expiring);
}

/* Counts the batch's members that have not ended. */
static void
look_at_members(int64 batch, BatchState *state, Snapshot snapshot, ExpiringMembers *expiring)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(batch)};
	HeapTuple	row;
	TupleDesc	descriptor;
	Datum		value;
	bool		isnull;

	(void) engine_select(LOOK_AT_MEMBERS, snapshot, 1, types, values);
	row = SPI_tuptable->vals[0];
	descriptor = SPI_tuptable->tupdesc;
	state->remaining = DatumGetInt64(VALUE(1));
	state->children = DatumGetInt64(VALUE(2));
	value = VALUE(3);
	if (state->dead_job == 0 && !isnull)
		state->dead_job = DatumGetInt64(value);
	state->all_completed = DatumGetBool(VALUE(4));
	if (DatumGetBool(VALUE(5)))
		look_at_joint_members(batch, state, snapshot, expiring);
#undef VALUE
}

/* A callback whose condition has come true. */
typedef struct Callback
{
	int64		batch;
	int64		job;			/* the job that died; 0: none */
} Callback;

/* The batch's args with its id and, of a death, the job's. */
static Jsonb *
callback_args(const void *subject, Jsonb *of_args)
{
	const Callback *callback = subject;
	Oid			types[] = {JSONBOID, INT8OID, INT8OID};
	Datum		values[] = {JsonbPGetDatum(of_args ? of_args : jsonb_parse("{}")),
							Int64GetDatum(callback->batch), Int64GetDatum(callback->job)};

	return engine_select_jsonb("SELECT $1 || jsonb_strip_nulls(jsonb_build_object('batch', $2, 'job', nullif($3, 0)))",
							   lengthof(types), types, values);
}

void
batch_check_args(Jsonb *args)
{
	const Callback longest = {.batch = PG_INT64_MAX, .job = PG_INT64_MAX};

	if (VARSIZE(args) > MAX_ARGS_SIZE)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("args of the batch are too large"),
				 errdetail("They have %zu bytes; the limit is %d bytes (5 MB).", (Size) VARSIZE(args),
						   MAX_ARGS_SIZE),
				 errhint("Store the data in a table and pass its key.")));
	jsonb_check_text(args, "args");
	if (!jsonb_is_small(args))
		(void) callback_args(&longest, args);
}

/* Changes that a look at the batch has found, to be written together. */
typedef struct Changes
{
	bool		dies;
	bool		ends;
	bool		succeeds;
	bool		settles;
	int			called;			/* callbacks: the batch waits for them */
	Datum		callbacks[3];	/* their jobs */
} Changes;

/* Enqueues a callback. */
static void
call_back(int64 batch, const BatchState *state, const char *worker, int64 job, Changes *changes)
{
	Callback	callback = {.batch = batch, .job = job};
	EngineJob	new_job = {.owner = state->owner,
						   .worker = worker,
						   .context = state->context,
						   .batch = batch,
						   .callback = true,
						   .of_args = state->args,
						   .make_args = callback_args,
						   .subject = &callback};

	if (worker != NULL && enqueue_for(&new_job) != 0)
		changes->callbacks[changes->called++] = Int64GetDatum(new_job.id);
}

#define WRITE_BATCH \
	"UPDATE queue_jobs.tracked_batch SET" \
	" died_at = CASE WHEN $2 THEN clock_timestamp() ELSE died_at END, dead_job = CASE WHEN $2 THEN $6 ELSE dead_job END," \
	" ended_at = CASE WHEN $3 THEN clock_timestamp() ELSE ended_at END," \
	" succeeded_at = CASE WHEN $4 THEN clock_timestamp() ELSE succeeded_at END," \
	" settled_at = CASE WHEN $5 THEN coalesce(settled_at, clock_timestamp()) END," \
	" callbacks = CASE WHEN $7 = '{}' THEN callbacks ELSE callbacks || $7 END WHERE id = $1"

/* Writes what the look has changed. */
static void
write_batch(int64 batch, Changes *changes, int64 dead_job)
{
	Oid			types[] = {INT8OID, BOOLOID, BOOLOID, BOOLOID, BOOLOID, INT8OID, INT8ARRAYOID};
	ArrayType  *callbacks = construct_array(changes->callbacks, changes->called, INT8OID, 8,
											FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);
	Datum		values[] = {Int64GetDatum(batch), BoolGetDatum(changes->dies), BoolGetDatum(changes->ends),
							BoolGetDatum(changes->succeeds), BoolGetDatum(changes->settles),
							Int64GetDatum(dead_job), PointerGetDatum(callbacks)};

	(void) engine_statement_often(WRITE_BATCH, SPI_OK_UPDATE, lengthof(types), types, values, NULL);
}

/* All with one snapshot: what is retried meanwhile would be neither live nor dead. */
static void
look_at_state(int64 batch, BatchState *state, ExpiringMembers *expiring)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

	look_at_members(batch, state, snapshot, expiring);
	look_at_live_members(batch, state, snapshot, expiring);
	UnregisterSnapshot(snapshot);
}

/*
 * Makes the parent look at its children. Only the last of thousands that settles, and the first that dies,
 * do that.
 */
static void
tell_parent(const BatchState *state, const Changes *changes)
{
	if ((changes->dies && !news_batch_died(state->parent)) ||
		(state->settled && (changes->succeeds || !changes->settles)))
		news_note(NEWS_BATCH, state->parent);
	else if (changes->settles && !state->settled)
		news_note(NEWS_MEMBERS, state->parent);
}

/* Writes what has come true, and enqueues the callbacks. */
static void
act(int64 batch, const BatchState *state)
{
	bool		over = !state->open && state->remaining == 0 && state->children == 0;
	Changes		now = {.dies = state->dead_job != 0 && !state->died,
					   .ends = over && !state->has_ended,
					   .succeeds = over && state->all_completed && !state->has_succeeded};

	if (now.dies)
		call_back(batch, state, state->on_dead, state->dead_job, &now);
	if (now.ends)
		call_back(batch, state, state->on_ended, 0, &now);
	if (now.succeeds)
		call_back(batch, state, state->on_success, 0, &now);
	now.settles = over && now.called == 0 && !state->callbacks;
	/* also if it was over at the look before: a member may have been retried and have ended in between */
	if (over)
		news_note(NEWS_OVER, batch);
	if (!now.dies && !now.ends && !now.succeeds && now.settles == state->settled)
		return;
	write_batch(batch, &now, state->dead_job);
	if (state->parent != 0)
		tell_parent(state, &now);
	if (state->step_of != 0 && now.settles)
		news_note(NEWS_ENDED, state->step_of);
}

void
batch_look(int64 batch, ExpiringMembers *expiring)
{
	BatchState	state = {0};
	MemoryContext context = CurrentMemoryContext;
	bool		found;
	RunAs		saved;

	expiring->next = DT_NOEND;
	expiring->count = 0;
	news_try_look(batch);
	engine_begin(&saved);
	found = lock_batch(batch, &state, context);
	if (found)
	{
		news_look_begins(batch);
		look_at_state(batch, &state, expiring);
	}
	engine_end(&saved);
	if (!found)
		return;
	act(batch, &state);
	news_expect(batch, state.open ? NOT_BEFORE_CLOSED : state.remaining + state.children,
				state.died || state.dead_job != 0);
}

/* ---- removing ---- */

/*
 * How to remove rows of a table. batches_trim() goes through the table by its key, from one piece of rows to
 * the next, since the rows to remove may be far between. Each subselect makes a check a single look into an
 * index.
 */
typedef struct Trimmed
{
	CatalogRelation table;
	const char *last;			/* the key that ends the piece after $1; none: the rest is the last */
	const char *stay;			/* an update of rows that stay for longer; or NULL */
	const char *trim[3];		/* rows above $1 up to $2, at most $3 of them at once */
	const char *next;			/* when more of the piece's rows will go; or NULL */
} Trimmed;

#define ROWS_OF_PIECE "512"
#define LAST_KEY(key, table) \
	"SELECT " key " FROM queue_jobs." table " WHERE " key " > $1 ORDER BY " key \
	" OFFSET " ROWS_OF_PIECE " LIMIT 1"
#define DELETE_SOME(table, rows) \
	"DELETE FROM queue_jobs." table " WHERE ctid = ANY (ARRAY(" rows " LIMIT $3))"
#define OVER "b.id > $1 AND b.id <= $2 AND b.settled_at + b.keep <= clock_timestamp()"
/* This condition takes a look into each partition of finished jobs, since the callback may be in any. */
#define CALLBACK_IS_KEPT \
	"EXISTS (SELECT FROM unnest(b.callbacks) c WHERE (SELECT true FROM queue_jobs.live_job l WHERE l.id = c)" \
	" OR (SELECT true FROM queue_jobs.finished_job f WHERE f.id = c AND f.state <> 'completed' AND f.keep_until > now() LIMIT 1))"
#define JOB_IS_GONE(id) \
	"(SELECT true FROM queue_jobs.live_job l WHERE l.id = " id ") IS NULL" \
	" AND (SELECT true FROM queue_jobs.finished_job f WHERE f.id = " id " AND f.keep_until > clock_timestamp() LIMIT 1) IS NULL"

static const Trimmed trimmed[] = {
	{
		REL_TRACKED_BATCH,
		LAST_KEY("id", "tracked_batch"),
		/* finds members by the ids that they have, as the view ended_member does */
		"UPDATE queue_jobs.tracked_batch b SET settled_at = now() + greatest(interval '1 hour' - b.keep, '0')"
		" WHERE " OVER " AND " CALLBACK_IS_KEPT,
		{
			/* this finds members by the ids that they have, as the view ended_member does */
			DELETE_SOME("member_job",
						"SELECT m.row FROM queue_jobs.tracked_batch b"
						" CROSS JOIN LATERAL unnest((SELECT range_agg(int8range(g.first, g.last + 100)) FROM queue_jobs.member_range g WHERE g.batch = b.id)) r (ids)"
						" CROSS JOIN LATERAL (SELECT f.ctid AS row, f.batch FROM queue_jobs.member_job f WHERE f.id >= lower(r.ids) AND f.id < upper(r.ids) OFFSET 0) m"
						" WHERE " OVER " AND m.batch = b.id"),
			DELETE_SOME("joint_member",
						"SELECT m.row FROM queue_jobs.tracked_batch b"
						" CROSS JOIN LATERAL (SELECT j.ctid AS row FROM queue_jobs.joint_member j WHERE j.batch = b.id OFFSET 0) m WHERE " OVER),
			"WITH gone AS (DELETE FROM queue_jobs.tracked_batch b WHERE " OVER " RETURNING id)"
			" DELETE FROM queue_jobs.member_range g USING gone WHERE g.batch = gone.id",
		},
		"SELECT min(settled_at + keep) FROM queue_jobs.tracked_batch WHERE id > $1 AND id <= $2 AND settled_at IS NOT NULL",
	},
	{
		REL_MEMBER_JOB,
		LAST_KEY("id", "member_job"),
		NULL,
		{
			DELETE_SOME("member_job", "SELECT m.ctid FROM queue_jobs.member_job m"
						" WHERE m.id > $1 AND m.id <= $2 AND m.batch IS NULL AND m.keep_until <= clock_timestamp() AND " NEEDED_BY_NONE("m.id")),
		},
		"SELECT min(keep_until) FROM queue_jobs.member_job WHERE id > $1 AND id <= $2 AND batch IS NULL",
	},
	{
		REL_DEPENDENCY,
		LAST_KEY("child", "dependency"),
		NULL,
		{
			DELETE_SOME("dependency",
						"SELECT d.ctid FROM queue_jobs.dependency d WHERE d.child > $1 AND d.child <= $2 AND " JOB_IS_GONE("d.child")),
		},
	},
	{
		REL_JOB_SIGNAL,
		LAST_KEY("job", "job_signal"),
		NULL,
		{
			DELETE_SOME("job_signal",
						"SELECT s.ctid FROM queue_jobs.job_signal s WHERE s.job > $1 AND s.job <= $2 AND " JOB_IS_GONE("s.job")),
		},
	},
};

/* How far this process has got in its round through the tables. */
typedef struct TrimRound
{
	int			table;			/* lengthof(trimmed): it is over */
	int64		after;
	TimestampTz next;			/* when more of the rows met so far will go */
	int64		spent;			/* microseconds */
	int64		not_before;		/* start of the next round, by clock_elapsed(), which cannot be set */
} TrimRound;

/* True if the piece has more rows to be removed. */
static bool
trim_piece(const Trimmed *what, int64 after, int64 last)
{
	Oid			types[] = {INT8OID, INT8OID, INT4OID};
	Datum		values[] = {Int64GetDatum(after), Int64GetDatum(last), Int32GetDatum(TRIM_AT_ONCE)};

	if (what->stay != NULL)
		(void) engine_execute_often(what->stay, SPI_OK_UPDATE, lengthof(types), types, values, NULL);
	for (int i = 0; i < lengthof(what->trim) && what->trim[i] != NULL; i++)
		if (engine_execute_often(what->trim[i], SPI_OK_DELETE, lengthof(types), types, values, NULL) ==
			TRIM_AT_ONCE)
			return true;
	return false;
}

/* Returns the last id of the next piece. */
static int64
last_of_piece(const Trimmed *what, int64 after)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum(after)};
	bool		isnull;

	if (engine_execute_often(what->last, SPI_OK_SELECT, 1, types, values, NULL) == 0)
		return PG_INT64_MAX;
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
}

/* Returns when something of the piece is next due to go. */
static TimestampTz
next_of_piece(const Trimmed *what, int64 after, int64 last)
{
	Oid			types[] = {INT8OID, INT8OID};
	Datum		values[] = {Int64GetDatum(after), Int64GetDatum(last)};
	bool		isnull;
	Datum		next;

	if (what->next == NULL)
		return DT_NOEND;
	(void) engine_execute_often(what->next, SPI_OK_SELECT, lengthof(types), types, values, NULL);
	next = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	return isnull ? DT_NOEND : DatumGetTimestampTz(next);
}

/* Removes a piece, and goes on to the next piece or table. */
static void
trim_next(TrimRound *round)
{
	const Trimmed *what = &trimmed[round->table];
	TimestampTz next;			/* Min() would look for it twice */
	int64		last;

	if (table_has_no_rows(what->table))
		last = PG_INT64_MAX;
	else
	{
		last = last_of_piece(what, round->after);
		if (trim_piece(what, round->after, last))
			return;
		next = next_of_piece(what, round->after, last);
		round->next = Min(round->next, next);
	}
	round->table += last == PG_INT64_MAX;
	round->after = last == PG_INT64_MAX ? PG_INT64_MIN : last;
}

/*
 * Removes rows for a short while; the next call goes on. Larger tables take more calls, and have longer
 * pauses between two rounds.
 */
TimestampTz
batches_trim(TimestampTz now)
{
	static TrimRound round = {.after = PG_INT64_MIN, .next = DT_NOEND};
	int64		start = clock_elapsed();
	TimestampTz next;
	RunAs		saved;

	if (table_has_no_rows(REL_TRACKED_BATCH) && table_has_no_rows(REL_MEMBER_JOB) &&
		table_has_no_rows(REL_DEPENDENCY) && table_has_no_rows(REL_JOB_SIGNAL))
		return DT_NOEND;
	if (start < round.not_before)
		return now + Min(round.not_before - start, TRIM_EVERY);
	engine_begin(&saved);
	while (round.table < lengthof(trimmed) && clock_elapsed() - start < TRIM_FOR)
		trim_next(&round);
	engine_end(&saved);
	round.spent += clock_elapsed() - start;
	if (round.table < lengthof(trimmed))
		return now;
	next = round.next;
	round = (TrimRound) {
		.after = PG_INT64_MIN, .next = DT_NOEND,
		.not_before = clock_elapsed() + Min(TRIM_PAUSE * round.spent, TRIM_EVERY)
	};
	return next == DT_NOEND ? DT_NOEND : Max(next, now + TRIM_EVERY);
}
