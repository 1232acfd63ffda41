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
	int64		from;
	int			inserting;		/* transactions that have inserted, of any key at this place, and not ended */
	uint64		inserters;		/* that there have been so far */
	Oid			row_database;
	int64		row_key;		/* whose row is known; 0: none */
	ItemPointerData row;
} KeyHint;

typedef struct KeyHints
{
	pg_atomic_uint32 in_doubt;	/* prepared transactions that may have ended already, with rows anywhere */
	KeyHint		places[PLACES];
} KeyHints;

static KeyHints *key_hints = NULL;

/* The changes of this transaction at each place. */
#define DELETED 1
#define INSERTED 2
static uint8 own[PLACES];
static int	own_places[PLACES];
static int	own_count = 0;
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
	uint64		inserters;		/* at its place, when it was found */
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
	KeyWindow	window = {.from = PG_INT64_MIN};
	KeyHint    *hint;

	if (key_hints == NULL || pg_atomic_read_u32(&key_hints->in_doubt) > 0)
		return window;
	hint = &key_hints->places[key_hint_place(key)];
	SpinLockAcquire(&hint->mutex);
	if (is_hint_of(hint, key))
		window.from = hint->from;
	window.quiet = hint->inserting == (own[key_hint_place(key)] & INSERTED ? 1 : 0);
	window.inserters = hint->inserters;
	SpinLockRelease(&hint->mutex);
	if (own_hint(key)->key == key && own_hint(key)->inserters == window.inserters)
		window.from = Max(window.from, own_hint(key)->from);
	return window;
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
			.key = key, .from = from, .inserters = window->inserters
		};
		any_own_hints = true;
		return;
	}
	hint = &key_hints->places[key_hint_place(key)];
	SpinLockAcquire(&hint->mutex);
	if (hint->inserters == window->inserters && (!is_hint_of(hint, key) || hint->from < from))
	{
		hint->database = MyDatabaseId;
		hint->key = key;
		hint->from = from;
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
	}
	if (is_hint_of(hint, key) && id < hint->from)
		hint->from = id;
	SpinLockRelease(&hint->mutex);
	if (own_hint(key)->key == key && id < own_hint(key)->from)
		own_hint(key)->from = id;
	note_own(place, INSERTED);
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
	own_sql = false;
	key_hints_end_savepoint();
	for (int i = 0; i < own_count; i++)
	{
		KeyHint    *hint = &key_hints->places[own_places[i]];

		if ((own[own_places[i]] & INSERTED) != 0)
		{
			SpinLockAcquire(&hint->mutex);
			hint->inserting--;
			SpinLockRelease(&hint->mutex);
		}
		own[own_places[i]] = 0;
	}
	own_count = 0;
}

void
key_hints_begin_doubt(void)
{
	if (key_hints != NULL)
		pg_atomic_fetch_add_u32(&key_hints->in_doubt, 1);
}

void
key_hints_end_doubt(void)
{
	if (key_hints == NULL)
		return;
	forget_key_hints();
	pg_atomic_fetch_sub_u32(&key_hints->in_doubt, 1);
}
