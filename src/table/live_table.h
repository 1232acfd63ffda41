/*
 * live_table.h
 *		How jobs are taken, changed and put back: the table of live jobs by the table and index access
 *		methods, with no planner, no privileges to borrow, and SKIP LOCKED also for a delete. (What is on no
 *		path of a job, such as a move of a whole queue, is SQL beside its function.)
 *
 * A process that takes a job deletes or updates its row without waiting; the second one sees that another has
 * it, and goes on to the next. The row is the lock: when the transaction ends by any death, the job is as it
 * was.
 */
#ifndef QUEUE_JOBS_LIVE_TABLE_H
#define QUEUE_JOBS_LIVE_TABLE_H

#include "access/genam.h"
#include "executor/tuptable.h"
#include "index_writer.h"
#include "job.h"
#include "live_row.h"
#include "nodes/lockoptions.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

typedef struct LiveTable
{
	Relation	rel;
	MemoryContext context;		/* of live_open(), in which all of it lives */
	bool		writes;			/* writer is open */
	IndexWriter writer;
	TupleTableSlot *slot;		/* for rows to be written */
	TupleTableSlot **many;		/* for several at once, or NULL */
} LiveTable;

extern void live_open(LiveTable *table);

/* Called first by live_open(), if set: writes what a module has only noted. */
extern void (*live_before_open) (void);

/* Like live_open(), without calling live_before_open(), for a caller that adds jobs. */
extern void live_open_to_add(LiveTable *table);

/* To look only, as on a standby too. */
extern void live_open_to_read(LiveTable *table);
extern void live_close(LiveTable *table);
extern void live_insert(LiveTable *table, const Job *job);

/* Like live_insert(), for a job whose row this transaction has deleted: there is no other of its id. */
extern void live_insert_again(LiveTable *table, const Job *job);

/* Inserts up to LIVE_INSERT_MANY jobs, for less than one by one. */
#define LIVE_INSERT_MANY 500
extern void live_insert_many(LiveTable *table, const Job *jobs, int count);

/* Since the snapshot by which a scan shows the row: merged into the run of another job that we took. */
extern bool live_deleted_by_us(TupleTableSlot *slot);

/* Whether another transaction has locked, changed or deleted the row that a scan shows. */
extern bool live_is_out_of_reach(TupleTableSlot *slot);

typedef enum RowState
{
	ROW_FREE,
	ROW_LOCKED_SHARED,			/* open transactions keep it as it is: they rely on it */
	ROW_TAKEN,					/* an open transaction locks, changes or deletes it */
	ROW_GONE,					/* one that has committed has changed or deleted it */
} RowState;

/*
 * The state of the row that a scan shows, and the process of the open transaction; *pid 0: a prepared
 * transaction, or none.
 */
extern RowState live_row_state(TupleTableSlot *slot, int *pid);

/* Takes the job that the slot shows, if no other transaction has it. */
extern bool live_try_delete(LiveTable *table, TupleTableSlot *slot);
extern bool live_try_update(LiveTable *table, TupleTableSlot *slot, const Job *job);

/* Delete or update a job's row that live_find() has locked. */
extern void live_delete(LiveTable *table, TupleTableSlot *slot);
extern void live_update(LiveTable *table, TupleTableSlot *slot, const Job *job);

typedef enum FindResult
{
	FIND_NONE,					/* no live job of that id */
	FIND_LOCKED,				/* another transaction has it (only without "wait") */
	FIND_FOUND,
} FindResult;

/*
 * Finds a job by id and locks its row; slot and job then show its latest state. Claims of others pass it by:
 * at rollback it is published again, and a caller that leaves the row as it is must see to that at commit
 * (live_leave).
 */
extern FindResult live_find(LiveTable *table, int64 id, bool wait, TupleTableSlot **slot, Job *job);

/*
 * The row that live_find() has locked stays as it is: when we commit, claims that passed it by are to look
 * again.
 */
extern void live_leave(const Job *job);

/* Looks up jobs by id, one after the other and with one snapshot, without locking them. */
typedef struct IdScan
{
	LiveTable  *table;
	MemoryContext context;		/* of id_scan_begin(); what is found is copied to the caller's */
	/* of the table, when the scan began: our lock keeps it from being truncated */
	BlockNumber blocks;
	Relation	index;
	IndexScanDesc scan;
	Snapshot	snapshot;
	TupleTableSlot *slot;		/* the row that was found last */
} IdScan;

extern void id_scan_begin(IdScan *scan, LiveTable *table);
extern bool id_scan_find(IdScan *scan, int64 id, Job *job);
extern void id_scan_end(IdScan *scan);

/*
 * Deletes the row that the slot shows, waiting for those that have it locked; false, and nothing is done, if
 * a transaction has changed it since the slot was read.
 */
extern bool live_delete_if_unchanged(LiveTable *table, TupleTableSlot *slot, const Job *job);

/*
 * Moves jobs that are due by now to the index of those that can be claimed, no more than limit among so many
 * "looks", and only those of lanes that "wanted" says (NULL: all). Returns how many; the time of the next one
 * goes to *next_due (DT_NOEND: none), counting from *next_due on. Jobs that calls have put off are moved to
 * their time, limit of them and one in 32. All of them are ours until the transaction ends: a claimant must
 * not take many more than it needs.
 */
extern int
live_promote(LiveTable *table, TimestampTz now, int limit, int looks,
			 bool (*wanted)(int64 lane, void *argument), void *argument, TimestampTz *next_due);

typedef enum LookResult
{
	LOOK_NONE,
	LOOK_THERE,
	LOOK_GOING,					/* a transaction deletes it, and has not committed that yet */
} LookResult;

/* The job as it is now, unlocked. */
extern LookResult live_look_up(LiveTable *table, int64 id, Job *job);

typedef enum ShareResult
{
	SHARE_LOCKED,
	SHARE_REFUSED,				/* a transaction is changing or deleting it */
	SHARE_CHANGED,				/* one has done so */
} ShareResult;

/*
 * Locks the row that the slot shows FOR SHARE, without waiting. (KEY SHARE would not keep a claim's update
 * out.)
 */
extern ShareResult live_try_share(LiveTable *table, TupleTableSlot *slot);

#endif
