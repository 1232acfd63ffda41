/*
 * key_hint.c
 *		From where on a deduplication key's live jobs stand; see key_hint.h.
 *
 * A key's place is given by its value, and may be another's, for the one that needed it last has it: keys
 * share the count of inserting sessions, which makes hints move less often, and does no harm.
 */
#include "postgres.h"

#include "key_hint.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "shared.h"
#include "storage/spin.h"

#define PLACES 4096

typedef struct KeyHint
{
	slock_t		mutex;
	Oid			database;
	int64		key;			/* whose hint it is; 0: no key's */
	int64		from;			/* of committed jobs */
	int64		from_open;		/* of those of open transactions, too */
	int			inserting;		/* transactions that have inserted, of any key at this place, and not ended */
	uint64		inserters;		/* that there have been so far */
	int			committing;		/* those of them that have begun to commit, and not ended */
	uint64		commits;		/* that there have been so far */
	Oid			row_database;
	int64		row_key;		/* whose row is known; 0: none */
	ItemPointerData row;
} KeyHint;

typedef struct KeyHints
{
	pg_atomic_uint32 in_doubt;	/* prepared transactions that may have ended already, with rows anywhere */
	pg_atomic_uint32 doubts;	/* that there have been so far */
	KeyHint		places[PLACES];
} KeyHints;

static KeyHints *key_hints = NULL;

/* The changes of this transaction at each place. */
#define DELETED 1
#define INSERTED 2
#define COMMITTING 4
static uint8 own[PLACES];
static int64 own_lowest[PLACES];	/* id that it has inserted there, of any key */
static int	own_places[PLACES];
static int	own_count = 0;
static bool before_commit = false;	/* it has told that it commits */
static bool own_sql = false;	/* it has written the table by SQL: it is not known which keys */

/*
 * Hints of this transaction's own. A job that it has deleted itself stands in no shared hint, because a
 * rollback may bring the job back. These hints hold as long as no other session inserts jobs at their
 * place, and until a savepoint is rolled back.
 */
#define OWN_HINTS 64

typedef struct OwnHint
{
	int64		key;			/* 0: none */
	int64		from;
	uint64		commits;		/* at its place, when it was found */
} OwnHint;

static OwnHint own_hints[OWN_HINTS];
static bool any_own_hints = false;

/* Returns the place of a hint of this transaction's own. */
static OwnHint *
own_hint(int64 key)
{
	return &own_hints[(uint64) key % OWN_HINTS];
}

void
key_hints_end_savepoint(void)
{
	if (any_own_hints)
		memset(own_hints, 0, sizeof(own_hints));
	any_own_hints = false;
}

/* Initializes the hints. */
static void
key_hints_initialize(void *area)
{
	KeyHints   *initial = area;

	pg_atomic_init_u32(&initial->in_doubt, 0);
	pg_atomic_init_u32(&initial->doubts, 0);
	for (int i = 0; i < PLACES; i++)
		SpinLockInit(&initial->places[i].mutex);
}

void
key_hints_init(void)
{
	shared_add_area(sizeof(KeyHints), (void **) &key_hints, key_hints_initialize);
}

/* Returns the place of a key. */
static int
key_hint_place(int64 key)
{
	return (int) (((uint64) key ^ MyDatabaseId) % PLACES);
}

/* Whether the hint is of that key. */
static bool
is_hint_of(const KeyHint *hint, int64 key)
{
	return hint->key == key && hint->database == MyDatabaseId;
}

KeyWindow
key_hint_open(int64 key)
{
	KeyWindow	window = {0};
	KeyHint    *hint;

	if (key_hints == NULL || pg_atomic_read_u32(&key_hints->in_doubt) > 0)
		return window;
	hint = &key_hints->places[key_hint_place(key)];
	SpinLockAcquire(&hint->mutex);
	window.quiet = hint->committing == 0;
	window.no_inserter = hint->inserting == 0;
	window.commits = hint->commits;
	window.inserters = hint->inserters;
	SpinLockRelease(&hint->mutex);
	return window;
}

int64
key_hint_from(int64 key)
{
	int			place = key_hint_place(key);
	const OwnHint *own_one = own_hint(key);
	int64		from = PG_INT64_MIN;
	uint64		commits;
	KeyHint    *hint;

	if (key_hints == NULL || pg_atomic_read_u32(&key_hints->in_doubt) > 0)
		return from;
	hint = &key_hints->places[place];
	SpinLockAcquire(&hint->mutex);
	if (is_hint_of(hint, key))
		from = hint->from;
	commits = hint->commits;
	SpinLockRelease(&hint->mutex);
	if ((own[place] & INSERTED) != 0)
		from = Min(from, own_lowest[place]);
	return own_one->key == key && own_one->commits == commits ? Max(from, own_one->from) : from;
}

int64
key_hint_from_open(int64 key, uint32 *doubts)
{
	int64		from = PG_INT64_MIN;
	KeyHint    *hint;

	*doubts = key_hints_doubts();
	if (key_hints == NULL || pg_atomic_read_u32(&key_hints->in_doubt) > 0)
		return from;
	hint = &key_hints->places[key_hint_place(key)];
	SpinLockAcquire(&hint->mutex);
	if (is_hint_of(hint, key))
		from = hint->from_open;
	SpinLockRelease(&hint->mutex);
	return from;
}

void
key_hint_settle(int64 key, const KeyWindow *window, int64 from)
{
	KeyHint    *hint;

	if (key_hints == NULL || !window->quiet || own_sql)
		return;
	if (own[key_hint_place(key)] != 0)
	{
		*own_hint(key) = (OwnHint)
		{
			.key = key, .from = from, .commits = window->commits
		};
		any_own_hints = true;
		return;
	}
	hint = &key_hints->places[key_hint_place(key)];
	SpinLockAcquire(&hint->mutex);
	if (hint->commits == window->commits)
	{
		if (!is_hint_of(hint, key))
		{
			hint->database = MyDatabaseId;
			hint->key = key;
			hint->from = hint->from_open = PG_INT64_MIN;
		}
		hint->from = Max(hint->from, from);
		if (window->no_inserter && hint->inserters == window->inserters)
			hint->from_open = Max(hint->from_open, from);
	}
	SpinLockRelease(&hint->mutex);
}

/* Notes what this transaction has done at the place. */
static void
note_own(int place, uint8 what)
{
	if (own[place] == 0)
		own_places[own_count++] = place;
	own[place] |= what;
}

/* Moves the hint back to what this transaction has inserted, which is about to commit. */
static void
begin_commit(int place)
{
	KeyHint    *hint = &key_hints->places[place];

	if ((own[place] & INSERTED) == 0)
		return;
	SpinLockAcquire(&hint->mutex);
	if ((own[place] & COMMITTING) == 0)
	{
		hint->committing++;
		hint->commits++;
	}
	hint->from = Min(hint->from, own_lowest[place]);
	hint->from_open = Min(hint->from_open, own_lowest[place]);
	SpinLockRelease(&hint->mutex);
	own[place] |= COMMITTING;
}

void
key_hint_insert(int64 key, int64 id)
{
	int			place = key_hint_place(key);
	KeyHint    *hint;

	if (key_hints == NULL || key == 0)
		return;
	hint = &key_hints->places[place];
	SpinLockAcquire(&hint->mutex);
	if ((own[place] & INSERTED) == 0)
	{
		hint->inserting++;
		hint->inserters++;
		own_lowest[place] = id;
	}
	if (is_hint_of(hint, key))
	{
		hint->from = Min(hint->from, id);
		hint->from_open = Min(hint->from_open, id);
	}
	own_lowest[place] = Min(own_lowest[place], id);
	SpinLockRelease(&hint->mutex);
	if (own_hint(key)->key == key && id < own_hint(key)->from)
		own_hint(key)->from = id;
	note_own(place, INSERTED);
	if (before_commit)
		begin_commit(place);
}

void
key_hints_before_commit(XactEvent event)
{
	before_commit = true;
	for (int i = 0; i < own_count; i++)
		begin_commit(own_places[i]);
}

void
key_hint_delete(int64 key)
{
	if (key_hints != NULL && key != 0)
		note_own(key_hint_place(key), DELETED);
}

void
key_hint_know_row(int64 key, const ItemPointerData *tid)
{
	KeyHint    *hint;

	if (key_hints == NULL)
		return;
	hint = &key_hints->places[key_hint_place(key)];
	SpinLockAcquire(&hint->mutex);
	hint->row_database = MyDatabaseId;
	hint->row_key = key;
	hint->row = *tid;
	SpinLockRelease(&hint->mutex);
}

bool
key_hint_row(int64 key, ItemPointerData *tid)
{
	KeyHint    *hint;
	bool		known;

	if (key_hints == NULL)
		return false;
	hint = &key_hints->places[key_hint_place(key)];
	SpinLockAcquire(&hint->mutex);
	known = hint->row_key == key && hint->row_database == MyDatabaseId;
	*tid = hint->row;
	SpinLockRelease(&hint->mutex);
	return known;
}

void
key_hints_written_by_sql(void)
{
	own_sql = true;
}

/* All of them: rows of any key may have come. */
static void
forget_key_hints(void)
{
	for (int i = 0; key_hints != NULL && i < PLACES; i++)
	{
		KeyHint    *hint = &key_hints->places[i];

		SpinLockAcquire(&hint->mutex);
		hint->inserters++;
		hint->commits++;
		hint->key = 0;
		SpinLockRelease(&hint->mutex);
	}
}

/* After the commit can be seen, or the rollback. */
void
key_hints_end_transaction(void)
{
	if (own_sql)
		forget_key_hints();
	own_sql = before_commit = false;
	key_hints_end_savepoint();
	for (int i = 0; i < own_count; i++)
	{
		KeyHint    *hint = &key_hints->places[own_places[i]];

		if ((own[own_places[i]] & INSERTED) != 0)
		{
			SpinLockAcquire(&hint->mutex);
			hint->inserting--;
			hint->committing -= (own[own_places[i]] & COMMITTING) != 0;
			SpinLockRelease(&hint->mutex);
		}
		own[own_places[i]] = 0;
	}
	own_count = 0;
}

void
key_hints_begin_doubt(void)
{
	if (key_hints == NULL)
		return;
	pg_atomic_fetch_add_u32(&key_hints->in_doubt, 1);
	pg_atomic_fetch_add_u32(&key_hints->doubts, 1);	/* after it: see key_hint_from_open() */
}

uint32
key_hints_doubts(void)
{
	return key_hints == NULL ? 0 : pg_atomic_read_u32(&key_hints->doubts);
}

void
key_hints_end_doubt(void)
{
	if (key_hints == NULL)
		return;
	forget_key_hints();
	pg_atomic_fetch_sub_u32(&key_hints->in_doubt, 1);
}
