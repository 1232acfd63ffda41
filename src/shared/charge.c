/*
 * charge.c
 *		Jobs that are about to be charged; see charge.h.
 */
#include "postgres.h"

#include "charge.h"
#include "crash_ledger.h"
#include "executor_slot.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "shared.h"
#include "storage/spin.h"

/* processes that charge at once; those beyond it may see their jobs claimed before */
#define CHARGERS 32

/* Jobs that one process is charging, all of the database between two ids. */
typedef struct Charger
{
	Oid			database;		/* InvalidOid: free */
	int64		first;
	int64		last;
} Charger;

typedef struct Charges
{
	pg_atomic_uint32 count;		/* of chargers, so that they are mostly not looked at */
	slock_t		mutex;			/* of the chargers */
	Charger		chargers[CHARGERS];
} Charges;

static Charges *charges = NULL;
static int	own_charger = -1;

static void
charges_initialize(void *area)
{
	Charges    *initial = area;

	pg_atomic_init_u32(&initial->count, 0);
	SpinLockInit(&initial->mutex);
}

void
charges_init(void)
{
	shared_add_area(sizeof(Charges), (void **) &charges, charges_initialize);
}

void
charge_begin(int64 first, int64 last)
{
	if (charges == NULL)
		return;
	SpinLockAcquire(&charges->mutex);
	for (int i = 0; own_charger < 0 && i < CHARGERS; i++)
		if (!OidIsValid(charges->chargers[i].database))
		{
			charges->chargers[i].first = first;
			charges->chargers[i].last = last;
			charges->chargers[i].database = MyDatabaseId;
			own_charger = i;
		}
	SpinLockRelease(&charges->mutex);
	if (own_charger >= 0)
		pg_atomic_fetch_add_u32(&charges->count, 1);
}

bool
charge_end(void)
{
	if (own_charger < 0)
		return false;
	SpinLockAcquire(&charges->mutex);
	charges->chargers[own_charger].database = InvalidOid;
	SpinLockRelease(&charges->mutex);
	pg_atomic_fetch_sub_u32(&charges->count, 1);
	own_charger = -1;
	return true;
}

bool
charge_under_way(int64 job)
{
	bool		found = false;

	if (charges == NULL || pg_atomic_read_u32(&charges->count) == 0)
		return false;
	SpinLockAcquire(&charges->mutex);
	for (int i = 0; !found && i < CHARGERS; i++)
	{
		const Charger *charger = &charges->chargers[i];

		found = charger->database == MyDatabaseId && charger->first <= job && job <= charger->last;
	}
	SpinLockRelease(&charges->mutex);
	return found;
}

bool
charge_awaited(const Job *job)
{
	return ledger_blames(job->id, job->attempt) || executor_withholds(job->id) || charge_under_way(job->id);
}

bool
charge_possible(const Job *job)
{
	return shared_present() &&
		(ledger_names(job->id, job->attempt) || executor_withholds(job->id) || charge_under_way(job->id));
}
