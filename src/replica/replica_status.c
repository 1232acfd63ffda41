/*
 * replica_status.c
 *		How replicas are doing; see replica_status.h.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "replica_status.h"
#include "shared.h"
#include "storage/lwlock.h"

#define REPLICA_SLOTS 64		/* replicas of all databases together, that were asked of late */
#define LONGEST_REST 60			/* seconds for which a replica that failed is left alone */

static ReplicaSlot *slots = NULL;
static ConditionVariable *heard = NULL;	/* see replica_heard() */

/* Initializes the slots. */
static void
initialize_slots(void *area)
{
	for (int i = 0; i < REPLICA_SLOTS; i++)
		SpinLockInit(&slots[i].mutex);
}

/* Initializes what processes that want news sleep on. */
static void
initialize_heard(void *area)
{
	ConditionVariableInit(area);
}

void
replicas_init(void)
{
	shared_add_area(REPLICA_SLOTS * sizeof(ReplicaSlot), (void **) &slots, initialize_slots);
	shared_add_area(sizeof(ConditionVariable), (void **) &heard, initialize_heard);
}

ConditionVariable *
replica_heard(void)
{
	return heard;
}

/* Returns the slot of a replica of this database, or NULL. */
static ReplicaSlot *
find_replica_slot(const char *name)
{
	for (int i = 0; i < REPLICA_SLOTS; i++)
		if (slots[i].database == MyDatabaseId && strcmp(slots[i].name, name) == 0)
			return &slots[i];
	return NULL;
}

/* Whether no process tries the replica for a while. */
static bool
resting(const ReplicaSlot *slot, TimestampTz now)
{
	return slot->not_before != NO_TIME && now < slot->not_before &&
		slot->not_before - now <= LONGEST_REST * USECS_PER_SEC;
}

/*
 * Returns a free slot, or else the one unheard of for longest: this process may have missed that its
 * replica, its database or the extension there was dropped. Slots that must be left alone do not count.
 * NULL if there is none.
 */
static ReplicaSlot *
slot_to_use(TimestampTz now)
{
	ReplicaSlot *found = NULL;

	for (int i = 0; i < REPLICA_SLOTS; i++)
	{
		ReplicaSlot *slot = &slots[i];

		if (!OidIsValid(slot->database))
			return slot;
		if (!resting(slot, now) && (found == NULL || slot->heard_at < found->heard_at))
			found = slot;
	}
	return found;
}

/* With the LWLock held exclusively. NULL if no slot can be had: then nothing is known of the replica. */
static ReplicaSlot *
make_slot(const char *name)
{
	TimestampTz now = GetCurrentTimestamp();
	ReplicaSlot *slot = slot_to_use(now);

	if (slot == NULL)
		return NULL;
	/* its mutex is free: a process that has it has the LWLock, too */
	*slot = (ReplicaSlot)
	{
		.database = MyDatabaseId, .seen_at = NO_TIME, .not_before = NO_TIME, .error_at = NO_TIME,
		.heard_at = now
	};
	strlcpy(slot->name, name, sizeof(slot->name));
	SpinLockInit(&slot->mutex);
	return slot;
}

ReplicaSlot *
replica_lock(const char *name)
{
	ReplicaSlot *slot;

	if (slots == NULL)
		return NULL;
	LWLockAcquire(shared_lock_of(LOCK_OF_REPLICAS), LW_SHARED);
	slot = find_replica_slot(name);
	if (slot == NULL)
	{
		LWLockRelease(shared_lock_of(LOCK_OF_REPLICAS));
		LWLockAcquire(shared_lock_of(LOCK_OF_REPLICAS), LW_EXCLUSIVE);
		slot = find_replica_slot(name);
		if (slot == NULL)
			slot = make_slot(name);
	}
	if (slot == NULL)
		LWLockRelease(shared_lock_of(LOCK_OF_REPLICAS));
	else
		SpinLockAcquire(&slot->mutex);
	return slot;
}

void
replica_unlock(ReplicaSlot *slot)
{
	SpinLockRelease(&slot->mutex);
	LWLockRelease(shared_lock_of(LOCK_OF_REPLICAS));
}

void
replica_forget(const char *name)
{
	ReplicaSlot *slot;

	if (slots == NULL)
		return;
	LWLockAcquire(shared_lock_of(LOCK_OF_REPLICAS), LW_EXCLUSIVE);
	slot = find_replica_slot(name);
	if (slot != NULL)
		slot->database = InvalidOid;
	LWLockRelease(shared_lock_of(LOCK_OF_REPLICAS));
}

void
replica_forgive(const char *name)
{
	ReplicaSlot *slot = replica_lock(name);

	if (slot == NULL)
		return;
	slot->failures = 0;
	slot->not_before = NO_TIME;
	replica_unlock(slot);
}

bool
replica_left_alone(const char *name, TimestampTz now)
{
	ReplicaSlot *slot = replica_lock(name);
	bool		alone;

	if (slot == NULL)
		/* without a common memory of failures each process would try it for each job */
		return true;
	alone = resting(slot, now);
	replica_unlock(slot);
	return alone;
}

void
replica_seen(const char *name, const ReplicaPosition *position)
{
	TimestampTz now = GetCurrentTimestamp();
	ReplicaSlot *slot = replica_lock(name);

	if (slot == NULL)
		return;
	slot->state = REPLICA_READY;
	slot->position = *position;
	slot->seen_at = slot->heard_at = now;
	slot->failures = 0;
	slot->not_before = NO_TIME;
	replica_unlock(slot);
	ConditionVariableBroadcast(heard);
}

/* "length" of the error, cut where a character ends, is reckoned before the slot is locked. */
static void
set_error(ReplicaSlot *slot, const char *error, int length, TimestampTz now)
{
	memcpy(slot->error, error, length);
	slot->error[length] = '\0';
	slot->error_at = slot->heard_at = now;
}

/* Returns how much of an error there is room for. */
static int
error_length(const char *error)
{
	return pg_mbcliplen(error, strlen(error), REPLICA_ERROR_LENGTH - 1);
}

void
replica_failed(const char *name, ReplicaState state, const char *error, bool all)
{
	TimestampTz now = GetCurrentTimestamp();
	int			length = error_length(error);
	ReplicaSlot *slot = replica_lock(name);

	if (slot == NULL)
		return;
	slot->state = state;
	set_error(slot, error, length, now);
	if (all)
	{
		slot->not_before = now + Min(1 << Min(slot->failures, 6), LONGEST_REST) * USECS_PER_SEC;
		slot->failures++;
	}
	replica_unlock(slot);
	ConditionVariableBroadcast(heard);
}

void
replica_note_error(const char *name, const char *error)
{
	TimestampTz now = GetCurrentTimestamp();
	int			length = error_length(error);
	ReplicaSlot *slot = replica_lock(name);

	if (slot == NULL)
		return;
	set_error(slot, error, length, now);
	replica_unlock(slot);
	ConditionVariableBroadcast(heard);
}

void
replica_served(const char *name)
{
	ReplicaSlot *slot = replica_lock(name);

	if (slot == NULL)
		return;
	slot->served++;
	replica_unlock(slot);
}

bool
replica_next_slot(int *i, ReplicaSlot *copy)
{
	while (slots != NULL && *i < REPLICA_SLOTS)
	{
		ReplicaSlot *slot = &slots[(*i)++];

		LWLockAcquire(shared_lock_of(LOCK_OF_REPLICAS), LW_SHARED);
		SpinLockAcquire(&slot->mutex);
		*copy = *slot;
		SpinLockRelease(&slot->mutex);
		LWLockRelease(shared_lock_of(LOCK_OF_REPLICAS));
		if (copy->database == MyDatabaseId)
			return true;
	}
	return false;
}
