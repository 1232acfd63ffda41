/*
 * hold.c
 *		Locks on a job beside its row's; see hold.h.
 */
#include "postgres.h"

#include "access/twophase.h"
#include "access/xact.h"
#include "compat.h"
#include "hold.h"
#include "miscadmin.h"
#include "savepoint_notes.h"
#include "session_hold.h"
#include "storage/lock.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

/* Advisory locks of our own kinds, which pg_advisory_lock() cannot take: its kinds are 1 and 2. */
#define JOB_LOCK_KIND 0x716a
#define KEY_LOCK_KIND 0x716b
#define TOKEN_LOCK_KIND 0x716c
#define SLOT_LOCK_KIND 0x716d
#define PARK_LOCK_KIND 0x716e

/*
 * HOLD_RELY conflicts with the two others. Two more modes tell them apart: RowShareLock conflicts with
 * both, and AccessShareLock with HOLD_END alone.
 */
static const LOCKMODE lock_modes[] = {
	[HOLD_RELY] = ShareLock,
	[HOLD_RUN] = ExclusiveLock,
	[HOLD_END] = AccessExclusiveLock,
};

static LOCKTAG
lock_tag(int64 id, uint16 kind)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (id >> 32), (uint32) id, kind);
	return tag;
}

/*
 * The transaction's holds, to be released before it publishes what it did: the processes that this wakes must
 * find them gone, and the server itself releases locks later than that.
 */
typedef struct Held
{
	int			nest_level;		/* first: savepoint_notes.h */
	LOCKTAG		tag;
	LOCKMODE	mode;
} Held;

static Held *held = NULL;
static int	held_count = 0;
static int	held_size = 0;

static void
remember(const LOCKTAG *tag, LOCKMODE mode)
{
	if (held_count == held_size)
	{
		int			size = Max(held_size * 2, 64);	/* held_size changes only when the memory is there */

		held = held ? repalloc_huge(held, size * sizeof(Held)) : MemoryContextAllocHuge(TopMemoryContext, size * sizeof(Held));
		held_size = size;
	}
	held[held_count++] = (Held)
	{
		.tag = *tag,.mode = mode,.nest_level = GetCurrentTransactionNestLevel()
	};
}

/*
 * A transaction's holds belong to the transaction, or savepoint, and not to the statement: a portal, such as
 * a parameterised statement has, keeps its locks for itself until after the transaction's callbacks.
 */
static LockAcquireResult
acquire(const LOCKTAG *tag, LOCKMODE mode, bool session, bool only_try)
{
	ResourceOwner owner = CurrentResourceOwner;
	LockAcquireResult result;

	CurrentResourceOwner = CurTransactionResourceOwner;
	result = LockAcquire(tag, mode, session, only_try);
	CurrentResourceOwner = owner;
	return result;
}

static void
let_go(const LOCKTAG *tag, LOCKMODE mode, bool session, ResourceOwner of)
{
	ResourceOwner owner = CurrentResourceOwner;

	CurrentResourceOwner = of;
	LockRelease(tag, mode, session);
	CurrentResourceOwner = owner;
}

int
hold_count(void)
{
	return held_count;
}

int
hold_share(void)
{
	return Max(max_locks_per_xact * (MaxBackends + max_prepared_xacts) / 4, 64);
}

/*
 * Those noted at this level and deeper ones, which are the last. A procedure's session may have released some
 * already: session_hold.h.
 */
static void
end_level(int nest_level, ResourceOwner of)
{
	while (held_count > 0 && held[held_count - 1].nest_level >= nest_level)
	{
		Held	   *last = &held[--held_count];

		if (QjLockHeldByMe(&last->tag, last->mode))
			let_go(&last->tag, last->mode, false, of);
	}
}

void
hold_end_transaction(void)
{
	end_level(0, TopTransactionResourceOwner);
}

void
hold_end_savepoint(int nest_level)
{
	end_level(nest_level, CurTransactionResourceOwner);
}

void
hold_keep_savepoint(int nest_level)
{
	savepoint_notes_keep(held, held_count, sizeof(Held), nest_level);
}

void
hold_forget_transaction(void)
{
	held_count = 0;
}

static bool
try(int64 id, uint16 kind, LOCKMODE mode, bool session)
{
	LOCKTAG		tag = lock_tag(id, kind);

	if (acquire(&tag, mode, session, true) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	if (session_hold_noted(&tag))
	{
		let_go(&tag, mode, session, CurTransactionResourceOwner);
		return false;
	}
	if (session)
		session_hold_note(&tag);
	else
		remember(&tag, mode);
	return true;
}

static void
release(int64 id, uint16 kind, LOCKMODE mode, bool session)
{
	LOCKTAG		tag = lock_tag(id, kind);

	if (session)
		session_hold_forget(&tag);
	if (!session || QjLockHeldByMe(&tag, mode)) /* a procedure may have released it: session_hold.h */
		let_go(&tag, mode, session, CurTransactionResourceOwner);
	if (!session && held_count > 0 && memcmp(&held[held_count - 1].tag, &tag, sizeof(tag)) == 0 &&
		held[held_count - 1].mode == mode)
		held_count--;
}

void
hold_end_session(void)
{
	session_holds_forget();
	LockReleaseAll(USER_LOCKMETHOD, true);
}

bool
hold_try(int64 job, HoldMode mode, bool session)
{
	LOCKTAG		tag = lock_tag(job, JOB_LOCK_KIND);

	if (mode == HOLD_RUN && QjLockHeldByMe(&tag, ExclusiveLock))
		return false;
	return try(job, JOB_LOCK_KIND, lock_modes[mode], session);
}

void
hold_release(int64 job, HoldMode mode, bool session)
{
	release(job, JOB_LOCK_KIND, lock_modes[mode], session);
}

void
hold_wait_to_end(int64 job)
{
	LOCKTAG		tag = lock_tag(job, JOB_LOCK_KIND);

	(void) acquire(&tag, lock_modes[HOLD_END], false, false);
}

void
hold_wait_to_change(int64 job)
{
	LOCKTAG		tag = lock_tag(job, JOB_LOCK_KIND);

	(void) acquire(&tag, lock_modes[HOLD_END], false, false);
	remember(&tag, lock_modes[HOLD_END]);
}

/*
 * Whether another session has a lock on the job that conflicts with the mode; nothing is locked to find out.
 */
static bool
conflicts(int64 job, LOCKMODE mode)
{
	LOCKTAG		tag = lock_tag(job, JOB_LOCK_KIND);
	int			count;

	pfree(GetLockConflicts(&tag, mode, &count));
	return count > 0;
}

/*
 * A prepared transaction keeps the number of that which it was, and its process has none, or another one, by
 * then.
 */
static int
pid_of(VirtualTransactionId transaction)
{
	PGPROC	   *process;

	if (VirtualTransactionIdIsRecoveredPreparedXact(transaction))
		return 0;
	process = QjVirtualTransactionProcess(transaction);
	return process != NULL && QjLocalTransaction(process) == transaction.localTransactionId ? process->pid : 0;
}

static int
holders(int64 id, uint16 kind, LOCKMODE own_mode, int *pids, int size)
{
	LOCKTAG		tag = lock_tag(id, kind);
	int			count;
	int			found = 0;
	VirtualTransactionId *others = GetLockConflicts(&tag, ExclusiveLock, &count);

	if (QjLockHeldByMe(&tag, own_mode))
		pids[found++] = MyProcPid;
	for (int i = 0; i < count && found < size; i++)
		pids[found++] = pid_of(others[i]);
	pfree(others);
	return found;
}

int
hold_holders(int64 job, int *pids, int size)
{
	return holders(job, JOB_LOCK_KIND, lock_modes[HOLD_RELY], pids, size);
}

int
slot_holders(int64 slot, int *pids, int size)
{
	return holders(slot, SLOT_LOCK_KIND, ExclusiveLock, pids, size);
}

bool
slot_held_by_procedure(int64 slot)
{
	LOCKTAG		tag = lock_tag(slot, SLOT_LOCK_KIND);

	return session_hold_noted(&tag);
}

bool
hold_is_run(int64 job)
{
	LOCKTAG		tag = lock_tag(job, JOB_LOCK_KIND);

	return session_hold_noted(&tag) || (conflicts(job, RowShareLock) && !conflicts(job, AccessShareLock));
}

void
token_lock_wait(int64 token)
{
	LOCKTAG		tag = lock_tag(token, TOKEN_LOCK_KIND);
	int			most = 2 * hold_share();

	if (QjLockHeldByMe(&tag, ExclusiveLock))
		return;
	if (held_count >= most)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("transaction has too many tokens or jobs"),
				 errdetail("Each is a lock until the transaction ends; it has %d, and may have %d: half of the server's lock table.", held_count, most),
				 errhint("Commit from time to time, or increase \"max_locks_per_transaction\".")));
	(void) acquire(&tag, ExclusiveLock, false, false);
	remember(&tag, ExclusiveLock);
}

bool
key_lock_try(int64 key, bool session)
{
	return try(key, KEY_LOCK_KIND, ExclusiveLock, session);
}

void
key_lock_release(int64 key, bool session)
{
	release(key, KEY_LOCK_KIND, ExclusiveLock, session);
}

bool
slot_lock_try(int64 slot, bool session)
{
	LOCKTAG		tag = lock_tag(slot, SLOT_LOCK_KIND);

	return !QjLockHeldByMe(&tag, ExclusiveLock) && try(slot, SLOT_LOCK_KIND, ExclusiveLock, session);
}

void
slot_lock_release(int64 slot, bool session)
{
	release(slot, SLOT_LOCK_KIND, ExclusiveLock, session);
}

bool
park_lock_try(uint64 key, bool exclusive)
{
	LOCKTAG		tag = lock_tag((int64) key, PARK_LOCK_KIND);

	return (!exclusive && QjLockHeldByMe(&tag, ShareLock)) ||
		try((int64) key, PARK_LOCK_KIND, exclusive ? ExclusiveLock : ShareLock, false);
}
