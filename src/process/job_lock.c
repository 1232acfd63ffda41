/*
 * job_lock.c
 *		Locks on a job beside its row's.
 */
#include "postgres.h"

#include "access/twophase.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "compat.h"
#include "job_lock.h"
#include "miscadmin.h"
#include "savepoint_notes.h"
#include "settings.h"
#include "shared.h"
#include "storage/lock.h"
#include "storage/spin.h"
#include "utils/resowner.h"

typedef struct SessionHolds
{
	slock_t		mutex;			/* guards all below */
	int			count;
	LOCKTAG		tags[SESSION_HOLDS];
} SessionHolds;

static SessionHolds *session_holds = NULL;	/* one a slot of executors */
static SessionHolds *own_holds = NULL;

void
session_holds_init(void)
{
	shared_add_array(queue_jobs_max_executors, sizeof(SessionHolds), (void **) &session_holds);
}

void
session_holds_attach(int slot)
{
	own_holds = &session_holds[slot];
	session_holds_forget();
}

/* Writes the locks of this process's job to shared memory. */
static void
session_holds_note(const LOCKTAG *tags, int count)
{
	SpinLockAcquire(&own_holds->mutex);
	memcpy(own_holds->tags, tags, count * sizeof(LOCKTAG));
	own_holds->count = count;
	SpinLockRelease(&own_holds->mutex);
}

void
session_holds_forget(void)
{
	if (own_holds == NULL)
		return;
	SpinLockAcquire(&own_holds->mutex);
	own_holds->count = 0;
	SpinLockRelease(&own_holds->mutex);
}

/* Whether the process holds that lock for its job. */
static bool
has_session_hold(SessionHolds *holds, const LOCKTAG *tag)
{
	bool		found = false;

	if (holds->count == 0)
		return false;
	SpinLockAcquire(&holds->mutex);
	for (int i = 0; i < holds->count && !found; i++)
		found = memcmp(&holds->tags[i], tag, sizeof(*tag)) == 0;
	SpinLockRelease(&holds->mutex);
	return found;
}

/* Whether any executor has the lock, this one included. */
static bool
session_hold_noted(const LOCKTAG *tag)
{
	for (int i = 0; session_holds != NULL && i < queue_jobs_max_executors; i++)
		if (has_session_hold(&session_holds[i], tag))
			return true;
	return false;
}

/* Advisory locks of our own kinds, which pg_advisory_lock() cannot take: its kinds are 1 and 2. */
#define JOB_LOCK_KIND 0x716a
#define KEY_LOCK_KIND 0x716b
#define TOKEN_LOCK_KIND 0x716c
#define SLOT_LOCK_KIND 0x716d
#define PARK_LOCK_KIND 0x716e
#define CALL_LOCK_KIND 0x716f

/*
 * HOLD_RELY conflicts with the two others. Two more modes tell them apart: RowShareLock conflicts with
 * both, and AccessShareLock with HOLD_END alone.
 */
static const LOCKMODE lock_modes[] = {
	[HOLD_RELY] = ShareLock,
	[HOLD_RUN] = ExclusiveLock,
	[HOLD_END] = AccessExclusiveLock,
};

/* Returns the number with its bits rotated. */
static uint64
rotate_left(uint64 number, int bits)
{
	return number << bits | number >> (64 - bits);
}

/* A round of SipHash. */
static void
sip_round(uint64 v[4])
{
	v[0] += v[1];
	v[1] = rotate_left(v[1], 13) ^ v[0];
	v[0] = rotate_left(v[0], 32);
	v[2] += v[3];
	v[3] = rotate_left(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotate_left(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotate_left(v[1], 17) ^ v[2];
	v[2] = rotate_left(v[2], 32);
}

/*
 * Any role reads in pg_locks which locks there are. Keys and limits are known by hashes of args, and from a
 * hash a role could tell whether args are what it guesses, or find args with the same hash. So their locks
 * have numbers that only processes of this server can compute: SipHash-2-4 of the hash, by a secret that the
 * server keeps over restarts, as prepared transactions keep their locks, and shows to no session.
 */
static int64
secret_number(int64 id)
{
	const char *nonce = GetMockAuthenticationNonce();
	uint64		v[4] = {
		UINT64CONST(0x736f6d6570736575), UINT64CONST(0x646f72616e646f6d),
		UINT64CONST(0x6c7967656e657261), UINT64CONST(0x7465646279746573)
	};
	const uint64 blocks[] = {(uint64) id, (uint64) sizeof(id) << 56};
	uint64		key[2];

	StaticAssertStmt(MOCK_AUTH_NONCE_LEN >= sizeof(key), "the server's secret is too short");
	memcpy(key, nonce, sizeof(key));
	for (int i = 0; i < lengthof(v); i++)
		v[i] ^= key[i % 2];
	for (int i = 0; i < lengthof(blocks); i++)
	{
		v[3] ^= blocks[i];
		sip_round(v);
		sip_round(v);
		v[0] ^= blocks[i];
	}
	v[2] ^= 0xff;
	for (int i = 0; i < 4; i++)
		sip_round(v);
	return (int64) (v[0] ^ v[1] ^ v[2] ^ v[3]);
}

/* Returns the tag of an advisory lock of our own class. Numbers that are hashes are hidden. */
static LOCKTAG
lock_tag(int64 id, uint16 kind)
{
	LOCKTAG		tag;

	if (kind != JOB_LOCK_KIND)
		id = secret_number(id);
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (id >> 32), (uint32) id, kind);
	return tag;
}

/*
 * The nesting level of each hold that the transaction has: the server's locks cannot be counted, and are
 * released by it.
 */
static SavepointNotes held = {.size = sizeof(int)};

/* A hold is of the transaction or savepoint, and not of the portal in which the statement runs. */
static LockAcquireResult
acquire(const LOCKTAG *tag, LOCKMODE mode, bool only_try)
{
	ResourceOwner owner = CurrentResourceOwner;
	LockAcquireResult result;

	CurrentResourceOwner = CurTransactionResourceOwner;
	result = LockAcquire(tag, mode, false, only_try);
	CurrentResourceOwner = owner;
	return result;
}

/* Releases a lock of this transaction. */
static void
release_lock(const LOCKTAG *tag, LOCKMODE mode)
{
	ResourceOwner owner = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	LockRelease(tag, mode, false);
	CurrentResourceOwner = owner;
}

int
hold_count(void)
{
	return held.count;
}

int
hold_share(void)
{
	return Max(max_locks_per_xact * (MaxBackends + max_prepared_xacts) / 4, 64);
}

void
hold_transaction_end(XactEvent event)
{
	savepoint_notes_forget(&held);
}

/* Takes the lock, if no other session has it. */
static bool
try_hold(int64 id, uint16 kind, LOCKMODE mode)
{
	LOCKTAG		tag = lock_tag(id, kind);

	if (acquire(&tag, mode, true) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	if (session_hold_noted(&tag))
	{
		release_lock(&tag, mode);
		return false;
	}
	(void) savepoint_note_add(&held);
	return true;
}

/* Gives a lock back before the transaction ends. */
static void
release(int64 id, uint16 kind, LOCKMODE mode)
{
	LOCKTAG		tag = lock_tag(id, kind);

	release_lock(&tag, mode);
	held.count--;
}

void
hold_through_commits(int64 job, int64 key, int64 worker_slot, int64 key_slot)
{
	LOCKTAG		tags[SESSION_HOLDS];
	int			count = 0;

	tags[count++] = lock_tag(job, JOB_LOCK_KIND);
	if (key != 0)
		tags[count++] = lock_tag(key, KEY_LOCK_KIND);
	if (worker_slot != 0)
		tags[count++] = lock_tag(worker_slot, SLOT_LOCK_KIND);
	if (key_slot != 0)
		tags[count++] = lock_tag(key_slot, SLOT_LOCK_KIND);
	session_holds_note(tags, count);
}

void
hold_slots_through_commits(const int64 *slots, int count)
{
	for (int i = 0; i < count && own_holds->count < SESSION_HOLDS; i++)
	{
		LOCKTAG		tag = lock_tag(slots[i], SLOT_LOCK_KIND);

		SpinLockAcquire(&own_holds->mutex);
		own_holds->tags[own_holds->count++] = tag;
		SpinLockRelease(&own_holds->mutex);
	}
}

void
hold_end_session(void)
{
	session_holds_forget();
	LockReleaseAll(USER_LOCKMETHOD, true);
}

bool
hold_try(int64 job, HoldMode mode)
{
	LOCKTAG		tag = lock_tag(job, JOB_LOCK_KIND);

	if (mode == HOLD_RUN && QjLockHeldByMe(&tag, ExclusiveLock))
		return false;
	return try_hold(job, JOB_LOCK_KIND, lock_modes[mode]);
}

void
hold_release(int64 job, HoldMode mode)
{
	release(job, JOB_LOCK_KIND, lock_modes[mode]);
}

void
hold_wait(int64 job)
{
	LOCKTAG		tag = lock_tag(job, JOB_LOCK_KIND);

	(void) acquire(&tag, lock_modes[HOLD_END], false);
	(void) savepoint_note_add(&held);
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
	return process != NULL && QjLocalTransaction(process) == transaction.localTransactionId ? process->pid
																							: 0;
}

/* Finds the processes that have the lock. */
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
	if (held.count >= most)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("transaction has too many tokens or jobs"),
				 errdetail("Each is a lock until the transaction ends; it has %d, and may have %d: half of the server's lock table.", held.count, most),
				 errhint("Commit from time to time, or increase \"max_locks_per_transaction\".")));
	(void) acquire(&tag, ExclusiveLock, false);
	(void) savepoint_note_add(&held);
}

bool
key_lock_try(int64 key)
{
	return try_hold(key, KEY_LOCK_KIND, ExclusiveLock);
}

void
key_lock_release(int64 key)
{
	release(key, KEY_LOCK_KIND, ExclusiveLock);
}

void
key_call_begin(int64 key)
{
	LOCKTAG		tag = lock_tag(key, CALL_LOCK_KIND);

	(void) acquire(&tag, ShareLock, false);
}

void
key_call_end(int64 key)
{
	LOCKTAG		tag = lock_tag(key, CALL_LOCK_KIND);

	release_lock(&tag, ShareLock);
}

void
key_calls_await(int64 key)
{
	LOCKTAG		tag = lock_tag(key, CALL_LOCK_KIND);

	(void) acquire(&tag, ExclusiveLock, false);
	release_lock(&tag, ExclusiveLock);
}

bool
slot_lock_try(int64 slot)
{
	LOCKTAG		tag = lock_tag(slot, SLOT_LOCK_KIND);

	return !QjLockHeldByMe(&tag, ExclusiveLock) && try_hold(slot, SLOT_LOCK_KIND, ExclusiveLock);
}

void
slot_lock_release(int64 slot)
{
	release(slot, SLOT_LOCK_KIND, ExclusiveLock);
}

bool
park_lock_try(uint64 key, bool exclusive)
{
	LOCKTAG		tag = lock_tag((int64) key, PARK_LOCK_KIND);

	return (!exclusive && QjLockHeldByMe(&tag, ShareLock)) ||
		try_hold((int64) key, PARK_LOCK_KIND, exclusive ? ExclusiveLock : ShareLock);
}
