/*
 * end_news.c
 *		Ends that others wait for; see end_news.h.
 *
 * Each database has a part of its own, found by its slot (database_slot.h). One that gets a slot begins with
 * nothing known, also if it had the same before: without a slot its sessions note nothing.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "database_slot.h"
#include "end_news.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "savepoint_notes.h"
#include "settings.h"
#include "shared.h"
#include "waiter.h"

#define NEWS_KEPT 1024
#define FILTER_BITS 65536
#define EXPECTED 512
#define EXPECTED_WAYS 4
#define LOOK_BACK 8				/* pieces of news with which a new one is compared */
#define ROOM_FOR_ALL (NEWS_KEPT / 2)	/* so much news may be a single role's */

typedef struct Expected
{
	int64		batch;			/* 0: free */
	int64		ends;			/* 0 during a look */
	int64		counted;		/* ends since the look began */
	bool		looking;
	bool		died;
} Expected;

typedef struct Watch
{
	slock_t		mutex;
	Oid			database;
	uint32		times_taken;	/* of the slot, when the database had it */
	uint32		begun;			/* how often the two filters were swapped */
	bool		known;			/* the filter has all jobs that others wait for */
	bool		lost;			/* news found no room, or could not be noted */
	Oid			refused;		/* role whose news was lost since news_take() */
	int			count;
	News		news[NEWS_KEPT];
	Expected	expected[EXPECTED];
	int			current;		/* the filter that is asked; the other one is being filled */
	uint32		filter[2][FILTER_BITS / 32];
} Watch;

/* A note of this transaction: news, or (is_parent) a job for the filter. See savepoint_notes.h. */
typedef struct Noted
{
	int			nest_level;		/* first */
	bool		is_parent;
	News		news;
} Noted;

static Watch *watches = NULL;
static SavepointNotes noted = {.size = sizeof(Noted), .keeps = true};
static Oid	acting_for = InvalidOid;
static bool loses_all = false;	/* at the transaction's end */

void
news_init(void)
{
	shared_add_array(queue_jobs_max_databases, sizeof(Watch), (void **) &watches);
}

/* Whether it is what this database knows since it got the slot. */
static bool
is_watch_of(const Watch *watch, const DatabaseSlot *slot)
{
	return watch->database == MyDatabaseId && watch->times_taken == slot->times_taken;
}

/*
 * Returns this database's part with its mutex held; NULL if it has none. Large parts are cleared only for a
 * database that has got the slot.
 */
static Watch *
lock_watch(void)
{
	DatabaseSlot *slot = watches == NULL ? NULL : database_slot(MyDatabaseId, true);
	Watch	   *watch;

	if (slot == NULL)
		return NULL;
	watch = &watches[slot - database_slot_at(0)];
	SpinLockAcquire(&watch->mutex);
	if (!is_watch_of(watch, slot))
	{
		watch->database = MyDatabaseId;
		watch->times_taken = slot->times_taken;
		watch->known = false;
		watch->lost = true;
		watch->count = 0;
		memset(watch->expected, 0, sizeof(watch->expected));
	}
	return watch;
}

/* ---- notes ---- */

/* Notes news for the transaction's commit. */
static void
note_news(News news, bool is_parent)
{
	Noted	   *note = savepoint_note_add(&noted);

	note->is_parent = is_parent;
	note->news = news;
}

void
news_act_for(Oid role)
{
	acting_for = role;
}

/* The outer user. All callers of a function would share its definer's room for news. */
static Oid
role_of_news(void)
{
	return OidIsValid(acting_for) ? acting_for : GetOuterUserId();
}

void
news_note(NewsKind kind, int64 id)
{
	Noted	   *last = noted.count > 0 ? (Noted *) noted.notes + noted.count - 1 : NULL;
	Oid			role;

	if (!shared_present())
		return;
	role = role_of_news();
	if (last != NULL && !last->is_parent && last->nest_level == GetCurrentTransactionNestLevel() &&
		last->news.kind == kind && last->news.id == id && last->news.role == role)
		last->news.count++;
	else
		note_news((News) {.kind = kind, .count = 1, .role = role, .id = id}, false);
}

const News *
news_noted(int *number)
{
	const Noted *notes = noted.notes;

	while (*number < noted.count)
	{
		const Noted *note = &notes[(*number)++];

		if (!note->is_parent)
			return &note->news;
	}
	return NULL;
}

void
news_await_parent(int64 job)
{
	news_await_job(job);
	if (shared_present())
		note_news((News) {.id = job}, true);
}

void
news_lose_at_end(void)
{
	loses_all = shared_present();
}

void
news_forget_transaction(void)
{
	savepoint_notes_forget(&noted);
	loses_all = false;
}

/* ---- the filter ---- */

/* Returns the job's bit in the filter. */
static uint32
filter_bit(int64 job)
{
	return murmurhash32((uint32) job ^ murmurhash32((uint32) (job >> 32))) % FILTER_BITS;
}

/* Adds the job to both filters: to the one that is asked now, and to the one that takes its place later. */
static void
add_to_filter(Watch *watch, int64 job)
{
	uint32		bit = filter_bit(job);

	for (int i = 0; i < lengthof(watch->filter); i++)
		watch->filter[i][bit / 32] |= (uint32) 1 << (bit % 32);
}

/* Whether the filter has the job; it may also have it by chance. */
static bool
filter_has(const Watch *watch, int64 job)
{
	uint32		bit = filter_bit(job);

	return (watch->filter[watch->current][bit / 32] & (uint32) 1 << (bit % 32)) != 0;
}

/* This database's part, for a look without its mutex; NULL if it has none. */
static const Watch *
watch_to_read(void)
{
	DatabaseSlot *slot = watches == NULL ? NULL : database_slot(MyDatabaseId, false);
	const Watch *watch = slot == NULL ? NULL : &watches[slot - database_slot_at(0)];

	return watch != NULL && is_watch_of(watch, slot) ? watch : NULL;
}

void
news_await_job(int64 job)
{
	Watch	   *watch = lock_watch();

	if (watch == NULL)
		return;
	add_to_filter(watch, job);
	SpinLockRelease(&watch->mutex);
}

/*
 * No process clears bits of the current filter: a look without the mutex sees all that were set before. The
 * exception is a filter that is replaced, and then cleared, during the look: "begun" differs by then.
 */
bool
news_may_be_awaited(int64 job, bool *known)
{
	const Watch *watch = watch_to_read();
	uint32		begun;
	bool		found;

	*known = false;
	if (watch == NULL)
		return false;
	begun = watch->begun;
	pg_read_barrier();
	*known = watch->known;
	found = filter_has(watch, job);
	pg_read_barrier();
	*known = *known && watch->begun == begun;
	return found;
}

void
news_filter_begin(void)
{
	Watch	   *watch = lock_watch();

	if (watch == NULL)
		return;
	memset(watch->filter[!watch->current], 0, sizeof(watch->filter[0]));
	memset(watch->expected, 0, sizeof(watch->expected));	/* ends that were lost were not counted */
	watch->lost = false;
	SpinLockRelease(&watch->mutex);
}

/* "begun" changes before the filters do: a look that may miss a job of the former filter can tell. */
void
news_filter_known(void)
{
	Watch	   *watch = lock_watch();
	bool		again;

	if (watch == NULL)
		return;
	again = watch->lost;		/* a prepared transaction's jobs may be in neither filter */
	watch->begun++;
	pg_write_barrier();
	watch->current = !watch->current;
	pg_write_barrier();
	watch->known = !again;
	SpinLockRelease(&watch->mutex);
	waiters_wake_all();			/* each adds the job again that it waits for */
}

/* ---- what is expected ---- */

/*
 * The batch's place. With "make" it gets one that is free, or else that of the one that ends first; otherwise
 * NULL if it has none.
 */
static Expected *
find_expected(Watch *watch, int64 batch, bool make)
{
	Expected   *way =
		&watch->expected[murmurhash32((uint32) batch) % (EXPECTED / EXPECTED_WAYS) * EXPECTED_WAYS];
	Expected   *place = way;

	for (int i = 0; i < EXPECTED_WAYS; i++)
	{
		if (way[i].batch == batch)
			return &way[i];
		if (place->batch != 0 && (way[i].batch == 0 || way[i].ends < place->ends))
			place = &way[i];
	}
	if (!make)
		return NULL;
	*place = (Expected) {.batch = batch};
	return place;
}

void
news_try_look(int64 batch)
{
	Watch	   *watch = lock_watch();
	Expected   *expected;

	if (watch == NULL)
		return;
	expected = find_expected(watch, batch, false);
	if (expected != NULL)
		expected->batch = 0;
	SpinLockRelease(&watch->mutex);
}

void
news_look_begins(int64 batch)
{
	Watch	   *watch = lock_watch();
	Expected   *expected;

	if (watch == NULL)
		return;
	expected = find_expected(watch, batch, true);
	expected->ends = 0;
	expected->counted = 0;
	expected->looking = true;
	SpinLockRelease(&watch->mutex);
}

/* Removes the news that came while a look was under way. */
static void
remove_news_of_members(Watch *watch, int64 batch)
{
	int			kept = 0;

	for (int i = 0; i < watch->count; i++)
		if (watch->news[i].kind != NEWS_MEMBERS || watch->news[i].id != batch)
			watch->news[kept++] = watch->news[i];
	watch->count = kept;
}

/*
 * Notes how many ends of members must still come. The look may have seen some of the ends since it began.
 * Without them, as many must come in any case as are left. If all may have come, the news of them stays,
 * and there is another look; so it does if a look fails.
 */
void
news_expect(int64 batch, int64 ends, bool died)
{
	Watch	   *watch = lock_watch();
	Expected   *expected;

	if (watch == NULL)
		return;
	expected = find_expected(watch, batch, false);
	if (expected != NULL && expected->looking)
	{
		expected->ends = ends - expected->counted;
		expected->died = died;
		expected->looking = false;
		if (expected->ends > 0)
			remove_news_of_members(watch, batch);
		else
			expected->batch = 0;
	}
	SpinLockRelease(&watch->mutex);
}

bool
news_batch_died(int64 batch)
{
	Watch	   *watch = lock_watch();
	Expected   *expected;
	bool		died;

	if (watch == NULL)
		return false;
	expected = find_expected(watch, batch, false);
	died = expected != NULL && expected->died;
	SpinLockRelease(&watch->mutex);
	return died;
}

/* Whether the ends are the last that are expected, or it is not known how many are. */
static bool
are_expected(Watch *watch, const News *news)
{
	Expected   *expected = find_expected(watch, news->id, false);

	if (expected == NULL)
		return true;
	if (expected->looking)
	{
		expected->counted += news->count;
		return true;
	}
	expected->ends -= news->count;
	if (expected->ends > 0)
		return false;
	expected->batch = 0;
	return true;
}

/*
 * Whether members of the batch are known to live: those that are added make no difference to when it is
 * looked at.
 */
static bool
is_known_to_live(Watch *watch, int64 batch)
{
	const Expected *expected = find_expected(watch, batch, false);

	return expected != NULL && !expected->looking;
}

/* ---- news ---- */

/* Whether the role may have one more piece of news: it leaves at least as much room as its own news takes. */
static bool
news_has_room(const Watch *watch, Oid role)
{
	int			own = 0;

	if (watch->count < ROOM_FOR_ALL)
		return true;
	if (watch->lost && watch->refused == role)
		return false;
	for (int i = 0; i < watch->count; i++)
		own += watch->news[i].role == role;
	return own < NEWS_KEPT - watch->count;
}

/* Adds news, unless the latest news says the same. */
static void
add_news(Watch *watch, const News *news)
{
	NewsKind	kind = news->kind == NEWS_JOINED ? NEWS_BATCH : news->kind;

	for (int i = watch->count - 1; i >= Max(watch->count - LOOK_BACK, 0); i--)
		if (watch->news[i].kind == kind && watch->news[i].id == news->id)
			return;
	if (news_has_room(watch, news->role))
		watch->news[watch->count++] = (News) {.kind = kind, .count = 1, .role = news->role, .id = news->id};
	else
	{
		watch->lost = true;
		watch->refused = news->role;
	}
}

/* Whether it is for the scheduler. What is not known yet it finds out by looking at everything. */
static bool
is_for_scheduler(Watch *watch, const News *news)
{
	switch (news->kind)
	{
		case NEWS_MEMBERS:
			return are_expected(watch, news);
		case NEWS_JOINED:
			return !is_known_to_live(watch, news->id);
		case NEWS_ENDED:
			return filter_has(watch, news->id);
		default:
			return true;
	}
}

/*
 * Whether it is known, without the mutex, that others do not wait for the job: so it is with most. A session
 * that will wait adds the job to the filter before it takes the snapshot by which it, or the scheduler, looks
 * whether the job has ended. If the filter does not have the job once our commit can be seen, that snapshot
 * sees our commit.
 */
static bool
is_awaited_by_none(int64 job)
{
	bool		known;

	pg_memory_barrier();
	return !news_may_be_awaited(job, &known) && known;
}

/* Wakes the sessions that wait for the job or batch. */
static void
wake_sessions(const Noted *note)
{
	if (note->is_parent)
		return;
	if (note->news.kind == NEWS_ENDED)
		waiters_wake_job(note->news.id);
	else if (note->news.kind == NEWS_OVER)
		waiters_wake_batch(note->news.id);
}

/*
 * Publishes a note, with the mutex held for one at a time. Returns true if the caller must call the
 * scheduler.
 */
static bool
publish_note(const Noted *note)
{
	Watch	   *watch;
	bool		calls = false;

	wake_sessions(note);
	if (!note->is_parent && note->news.kind == NEWS_OVER)
		return false;
	if (!note->is_parent && note->news.kind == NEWS_ENDED && is_awaited_by_none(note->news.id))
		return false;
	watch = lock_watch();
	if (watch == NULL)
		return false;
	if (note->is_parent)
		add_to_filter(watch, note->news.id);
	else if (is_for_scheduler(watch, &note->news))
	{
		add_news(watch, &note->news);
		calls = true;
	}
	else
		calls = !watch->known;
	SpinLockRelease(&watch->mutex);
	return calls;
}

/* Publishes the notes from "first" on. The filter must have the parents before a look at their child. */
static void
publish_notes(int first)
{
	const Noted *notes = noted.notes;
	bool		is_news = false;

	for (int i = first; i < noted.count; i++)
		if (notes[i].is_parent)
			(void) publish_note(&notes[i]);
	for (int i = first; i < noted.count; i++)
		if (!notes[i].is_parent && publish_note(&notes[i]))
			is_news = true;
	if (is_news)
		(void) database_call(MyDatabaseId, CALL_NEWS);
}

void
news_lose_all(void)
{
	Watch	   *watch = lock_watch();

	if (watch == NULL)
		return;
	watch->known = false;
	watch->lost = true;
	SpinLockRelease(&watch->mutex);
	(void) database_call(MyDatabaseId, CALL_NEWS);
}

void
news_end_transaction(void)
{
	if (noted.count > 0)
		publish_notes(0);
	if (loses_all)
		news_lose_all();
	news_forget_transaction();
}

void
news_undo_savepoint(int nest_level)
{
	int			first = savepoint_notes_first(&noted, nest_level);

	if (first == noted.count)
		return;
	publish_notes(first);
	noted.count = first;
}

int
news_take(News *news, int size, bool *lost)
{
	Watch	   *watch = lock_watch();
	int			count;

	*lost = false;
	if (watch == NULL)
		return 0;
	*lost = watch->lost;
	watch->refused = InvalidOid;
	count = Min(size, watch->count);
	memcpy(news, watch->news, count * sizeof(News));
	memmove(watch->news, watch->news + count, (watch->count - count) * sizeof(News));
	watch->count -= count;
	SpinLockRelease(&watch->mutex);
	return count;
}
