/*
 * wakeup.c
 *		What a transaction has to tell others when it ends; see wakeup.h.
 *
 * The callback runs after the transaction has ended, and must not fail: all memory it needs is there before.
 */
#include "postgres.h"

#include "access/xact.h"
#include "database_slot.h"
#include "end_news.h"
#include "executor_slot.h"
#include "key_hint.h"
#include "lane_hint.h"
#include "live_count.h"
#include "location.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "savepoint_notes.h"
#include "shared.h"
#include "storage/ipc.h"
#include "test_point.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "waiter.h"
#include "wakeup.h"

typedef struct TouchedLane
{
	int64		lane;			/* or the number, below zero, of a worker with limits */
	Oid			role;
	LanePosition position;		/* lowest that was touched */
	int			jobs;			/* new ones, published at commit */
	bool		released;		/* one was relied on; published in any case */
	int			relied_at;		/* nesting level at which that was, 0: none; published at rollback */
	int			taken_at;		/* the same of one that was taken */
	bool		key_ends;		/* a run that others of its key waited for has ended */
	bool		of_values;		/* and they may be in lanes of values of fair_key */
	uint32		passed_count;	/* of the lane's hint, when that was noted */
	int			succeeded;		/* jobs of a limited-capacity worker */
	int			limited_at;		/* nesting level at which a slot of the worker was taken, 0: none */
	TimestampTz lease_ends;		/* the first of those that were written, or DT_NOEND */
	bool		due;			/* a job that claimants claim waits here for its time */
	bool		wake;			/* published; a process is to look */
	uint32		pools;			/* that served it when it was published; 0: not known */
} TouchedLane;

typedef struct EndRequest
{
	int			nest_level;		/* first: savepoint_notes.h */
	int64		job;			/* 0: it has ended */
	JobState	end_as;
	bool		run_only;
} EndRequest;

#define LATEST_REQUESTS 1024	/* that a repeated one is compared with */

static TouchedLane *touched = NULL;
static int	touched_count = 0;
static int	touched_size = 0;
static HTAB *touched_by_lane = NULL;	/* id of a lane -> its index in "touched"; made when they are many */

/*
 * Lanes for which something was noted that a savepoint's rollback undoes, in the order of its nesting levels:
 * a savepoint's end needs to look at its own only.
 */
typedef struct LevelNote
{
	int			nest_level;		/* first: savepoint_notes.h */
	int			lane;			/* its index in "touched" */
} LevelNote;

static SavepointNotes level_notes = {.size = sizeof(LevelNote), .keeps = true};
static SavepointNotes requests = {.size = sizeof(EndRequest)};
static bool any_run_only = false;	/* among the requests, or those that were rolled back */
static bool requests_announced = false;	/* executors wait for our end */
static TimestampTz first_due = DT_NOEND;
static TimestampTz first_due_if_undone = DT_NOEND;
static bool look_at_all = false;
static bool look_at_schedules = false;
static bool sweep_parked = false;
static bool defined = false;	/* something that jobs may wait for was */
static bool roles_changed = false;	/* a statement may have changed which jobs a role may claim */
static bool prepared_ended = false;
static bool in_doubt = false;	/* a prepared transaction is being ended */
static Oid	served_role = InvalidOid;	/* whose jobs this process runs */
static uint32 served_pool = 0;	/* and of which pool: its bit */

/*
 * The end that is published when the server has released its locks: none, that of the transaction, or that
 * of the savepoints of undone_level and deeper ones.
 */
static enum
{
	ENDED_NOTHING,
	ENDED_COMMIT,
	ENDED_ROLLBACK,
	ENDED_SAVEPOINT,
}			ended = ENDED_NOTHING;
static int	undone_level;

#define MANY_TOUCHED 16			/* lanes, from which on they are looked up in a table */

typedef struct TouchedEntry
{
	int64		lane;			/* hash key */
	int			index;
} TouchedEntry;

/* Adds a lane to the hash table. */
static void
enter_touched(int index)
{
	TouchedEntry *entry = hash_search(touched_by_lane, &touched[index].lane, HASH_ENTER, NULL);

	entry->index = index;
}

/* Returns the notes on a lane, or NULL. */
static TouchedLane *
find_touched(int64 lane)
{
	TouchedEntry *entry;

	if (touched_count > 0 && touched[touched_count - 1].lane == lane)
		return &touched[touched_count - 1];
	if (touched_by_lane != NULL)
	{
		entry = hash_search(touched_by_lane, &lane, HASH_FIND, NULL);
		return entry ? &touched[entry->index] : NULL;
	}
	for (int i = touched_count - 2; i >= 0; i--)
		if (touched[i].lane == lane)
			return &touched[i];
	return NULL;
}

/* Grows the array of touched lanes. Its size changes only when the memory is there. */
static void
make_room_for_touched(void)
{
	int			larger = Max(touched_size * 2, 16);

	touched = touched ? repalloc_huge(touched, larger * sizeof(TouchedLane))
					  : MemoryContextAllocHuge(TopMemoryContext, larger * sizeof(TouchedLane));
	touched_size = larger;
}

/* Makes notes on a lane. Many lanes get a hash table. */
static TouchedLane *
add_touched(int64 lane, Oid role)
{
	if (touched_count == touched_size)
		make_room_for_touched();
	if (touched_count == MANY_TOUCHED && touched_by_lane == NULL)
	{
		HASHCTL		control = {.keysize = sizeof(int64), .entrysize = sizeof(TouchedEntry),
							   .hcxt = TopTransactionContext};
		HTAB	   *table = hash_create("queue_jobs touched lanes", 256, &control,
										HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);

		touched_by_lane = table;
		for (int i = 0; i < touched_count; i++)
			enter_touched(i);
	}
	touched[touched_count] = (TouchedLane)
	{
		.lane = lane, .role = role, .position = highest_position, .lease_ends = DT_NOEND
	};
	if (touched_by_lane != NULL)
		enter_touched(touched_count);
	return &touched[touched_count++];
}

/* Notes a position of a lane. */
static TouchedLane *
touch(int64 lane, Oid role, LanePosition position)
{
	TouchedLane *found = find_touched(lane);

	if (found == NULL)
		found = add_touched(lane, role);
	if (!OidIsValid(found->role))
		found->role = role;		/* earlier notes do not depend on the role */
	if (lane_position_compare(&position, &found->position) < 0)
		found->position = position;
	return found;
}

/* Does the same for notes of a lane, without a job. */
static TouchedLane *
touch_lane(int64 lane, Oid role)
{
	return touch(lane, role, highest_position);
}

/*
 * Something was noted of the lane that the rollback of this savepoint undoes; returns the savepoint's level.
 */
static int
note_level(const TouchedLane *lane)
{
	int			nest_level = GetCurrentTransactionNestLevel();
	LevelNote  *note;

	if (nest_level == 1)
		return nest_level;
	note = savepoint_note_add(&level_notes);
	note->lane = lane - touched;
	return nest_level;
}

void
wakeup_job(int64 lane, Oid role, LanePosition position)
{
	if (shared_present())
		touch(lane, role, position)->jobs++;
}

void
wakeup_taken(int64 lane, Oid role, LanePosition position)
{
	TouchedLane *touched_lane;

	if (!shared_present())
		return;
	touched_lane = touch(lane, role, position);
	touched_lane->taken_at = note_level(touched_lane);
}

void
wakeup_lease(int64 lane, TimestampTz ends)
{
	TouchedLane *touched_lane;

	if (!shared_present())
		return;
	touched_lane = touch_lane(lane, InvalidOid);
	touched_lane->lease_ends = Min(touched_lane->lease_ends, ends);
}

void
wakeup_released(int64 lane, Oid role, LanePosition position)
{
	TouchedLane *touched_lane;

	if (!shared_present())
		return;
	touched_lane = touch(lane, role, position);
	touched_lane->released = true;
	touched_lane->relied_at = note_level(touched_lane);
}

void
wakeup_key_ends(int64 lane, Oid role, bool of_values)
{
	TouchedLane *touched_lane;

	if (!shared_present())
		return;
	touched_lane = touch_lane(lane, role);
	if (!touched_lane->key_ends)
		touched_lane->passed_count = lane_hint_passed_count(lane);
	touched_lane->key_ends = true;
	touched_lane->of_values |= of_values;
}

int
wakeup_limited_begin(int32 worker)
{
	TouchedLane *touched_lane;
	int			before;

	if (!shared_present())
		return 0;
	touched_lane = touch_lane(worker, InvalidOid);
	before = touched_lane->limited_at;
	if (before < GetCurrentTransactionNestLevel())
		touched_lane->limited_at = note_level(touched_lane);
	return before;
}

void
wakeup_limited_undo(int32 worker, int before)
{
	if (shared_present())
		touch_lane(worker, InvalidOid)->limited_at = before;
}

void
wakeup_limited(int32 worker)
{
	(void) wakeup_limited_begin(worker);
}

void
wakeup_succeeded(int64 lane)
{
	if (shared_present())
		touch_lane(lane, InvalidOid)->succeeded++;
}

bool
wakeup_next_touched(TouchedWalk *walk, TimestampTz now, int64 *lane, LanePosition *first)
{
	for (; walk->i < touched_count; walk->i++)
	{
		const TouchedLane *next = &touched[walk->i];

		*lane = next->lane;
		*first = next->position;

		/*
		 * a slot that was freed counts where a claim was refused; one that is refused later hears of it when
		 * we commit
		 */
		if (next->limited_at > 0 && lane_hint_next_refused(next->lane, &walk->hint, lane))
			return true;
		walk->hint = 0;
		if (next->jobs == 0 && !next->released && !next->key_ends && next->lease_ends > now)
			continue;
		walk->i++;
		return true;
	}
	return false;
}

void
wakeup_due(int64 lane, Oid role, TimestampTz due)
{
	first_due = Min(first_due, due);
	if (shared_present() && lane != 0 && !OidIsValid(role))
		touch_lane(lane, role)->due = true;
}

void
wakeup_due_if_undone(int64 lane, Oid role, TimestampTz due)
{
	first_due_if_undone = Min(first_due_if_undone, due);
	if (shared_present() && lane != 0 && !OidIsValid(role))
		touch_lane(lane, role)->due = true;
}

void
wakeup_schedules(void)
{
	look_at_schedules = true;
}

void
wakeup_serve(Oid role, int pool)
{
	served_role = role;
	served_pool = (uint32) 1 << pool;
}

void
wakeup_sweep(void)
{
	sweep_parked = true;
}

void
wakeup_all(void)
{
	look_at_all = true;
}

/* Whether one of the latest requests is the same. A savepoint that is rolled back takes its own away. */
static bool
is_requested(int64 job, JobState end_as)
{
	const EndRequest *notes = requests.notes;

	for (int i = requests.count - 1; i >= Max(requests.count - LATEST_REQUESTS, 0); i--)
		if (notes[i].job == job && notes[i].end_as == end_as && notes[i].run_only)
			return true;
	return false;
}

void
wakeup_end_running(int64 job, JobState end_as, bool run_only)
{
	EndRequest *request;

	if (run_only && is_requested(job, end_as))
		return;
	request = savepoint_note_add(&requests);
	request->job = job;
	request->end_as = end_as;
	request->run_only = run_only;
	any_run_only |= run_only;
}

/* Compares requests by their jobs. */
static int
compare_requests(const void *a, const void *b)
{
	const EndRequest *x = a;
	const EndRequest *y = b;

	if (x->job != y->job)
		return x->job < y->job ? -1 : 1;
	return (int) x->end_as - (int) y->end_as;
}

bool
wakeup_next_end(int *i, int64 *job, JobState *end_as, bool *run_only)
{
	const EndRequest *notes = requests.notes;

	/* the caller waits for rows: two transactions that end the same runs must do so in the same order */
	if (*i == 0 && any_run_only)
		qsort(requests.notes, requests.count, sizeof(EndRequest), compare_requests);
	while (*i < requests.count && notes[*i].job == 0)
		(*i)++;
	if (*i >= requests.count)
		return false;
	*job = notes[*i].job;
	*end_as = notes[*i].end_as;
	*run_only = notes[*i].run_only;
	(*i)++;
	return true;
}

void
wakeup_end_made(int number)
{
	((EndRequest *) requests.notes)[number].job = 0;
}

/* Tells executors how the transaction ended that announced the ends of their jobs. */
static void
end_announcements(int count, bool committed)
{
	const EndRequest *notes = requests.notes;

	for (int i = 0; i < count; i++)
		if (notes[i].job != 0)
			executor_end_announced(notes[i].job, committed ? (int) notes[i].end_as : -1);
}

bool
wakeup_announce_ends(void)
{
	const EndRequest *notes = requests.notes;

	requests_announced = true;
	for (int i = 0; i < requests.count && requests_announced; i++)
	{
		if (notes[i].job == 0 || executor_announce_end(notes[i].job))
			continue;
		end_announcements(i, false);
		requests_announced = false;
	}
	return requests_announced;
}

/* Forgets the notes of the transaction. */
static void
forget_wakeups(void)
{
	touched_count = 0;
	touched_by_lane = NULL;		/* it goes with the transaction's memory */
	savepoint_notes_forget(&level_notes);
	savepoint_notes_forget(&requests);
	requests_announced = false;
	any_run_only = false;
	first_due = DT_NOEND;
	first_due_if_undone = DT_NOEND;
	look_at_all = false;
	look_at_schedules = false;
	sweep_parked = false;
	defined = false;
	roles_changed = false;
	prepared_ended = false;
}

/* Wakes executors for a lane's new jobs, or calls for more of them. */
static void
wake_executors(const TouchedLane *lane)
{
	int			wanted = Max(lane->jobs, 1);
	uint32		pools;

	if (!OidIsValid(lane->role))
		return;
	pools = lane->pools != 0 ? lane->pools : lane_hint_pools(lane->lane);
	while (wanted > 0 && executor_wake_idle(MyDatabaseId, lane->role, pools))
		wanted--;
	if (wanted == 0)
		return;
	if (executor_stays(MyDatabaseId, lane->role))
		(void) database_call(MyDatabaseId, CALL_LOOK);
	else
		database_call_unserved(MyDatabaseId, lane->role, wanted > 1);
}

/* Wakes executors and claimants. The lane may need either, as its worker may be defined otherwise by now. */
static void
wake_processes(const TouchedLane *lane)
{
	wake_executors(lane);
	waiters_wake_lane(lane->lane, lane->jobs);
}

/* Publishes a lane's position. */
static void
publish_lane(TouchedLane *lane)
{
	lane->pools = lane_hint_publish(lane->lane, lane->position);
	lane->wake = true;
}

/* A job that was relied on may have been moved to other lanes meanwhile. */
static void
publish_released(const TouchedLane *lane)
{
	TouchedLane moved = *lane;

	moved.jobs = 1;
	for (int depth = 0; depth < LONGEST_CHAIN; depth++)
	{
		moved.lane = lane_hint_moved_to(moved.lane);
		if (moved.lane == 0 || moved.lane == lane->lane)
			break;
		publish_lane(&moved);
		wake_processes(&moved);
	}
}

/* Whether this process looks itself for the next job there. */
static bool
is_served_here(const TouchedLane *lane)
{
	return OidIsValid(lane->role) && lane->role == served_role &&
		(lane_hint_pools(lane->lane) & served_pool) != 0;
}

/* Publishes the worker's lanes that were refused: to other lanes a job's end is of no use. */
static void
publish_limited(int32 worker)
{
	int			i = 0;
	TouchedLane lane = {0};

	while (lane_hint_allow_next(worker, &i, &lane.lane, &lane.role))
	{
		if (!is_served_here(&lane))
			wake_processes(&lane);
	}
	if (!lane_hints_allow_lost())
		return;
	(void) database_call(MyDatabaseId, CALL_LOOK);	/* it is not known whose they are */
	waiters_wake_lanes(MyDatabaseId);
}

void
wakeup_limited_now(int32 worker)
{
	if (shared_present())
		publish_limited(worker);
}

void
wakeup_revisit(int64 lane, Oid role, TimestampTz at)
{
	TouchedLane revisited = {.lane = lane, .role = role};

	if (shared_present() && lane_hint_revisit(lane, at, true))
		wake_processes(&revisited);
}

/*
 * A job of a key has ended, others of which may be in the lanes of any value of a fair_key. All hints are
 * looked at; what was passed by there for another key is published in vain.
 */
static void
publish_passed_of_values(const TouchedLane *lane)
{
	TouchedLane value = {.role = lane->role};

	for (int i = 0; lane_hint_next(&i, &value.lane); i++)
		if (lane_row(value.lane) == lane_row(lane->lane) && lane_hint_publish_all_passed(value.lane))
			wake_processes(&value);
}

/* Publishes the jobs of a limited-capacity worker that succeeded. */
static void
publish_success(const TouchedLane *lane)
{
	lane_hint_add_successes(lane->lane, lane->succeeded);
	(void) database_call(MyDatabaseId, CALL_SUCCEEDED);
}

/* Wakes sessions that wait for the lanes: the scheduler may be late, or not be allowed to run. */
static void
wake_for_due(void)
{
	for (int i = 0; i < touched_count; i++)
		if (touched[i].due)
			waiters_wake_lane(touched[i].lane, 1);
}

/* Publishes the notes of the transaction. */
static void
publish_wakeups(bool committed)
{
	if (committed && defined)
		databases_call_blocked();
	if (committed && roles_changed)
		waiters_wake_lanes(InvalidOid);
	if (!committed)
		first_due = Min(first_due, first_due_if_undone);
	if (touched_count == 0 && requests.count == 0 && first_due == DT_NOEND && !look_at_all &&
		!look_at_schedules && !sweep_parked)
		return;
	if (committed)
		test_point("publishes");
	if (look_at_all)
	{
		lane_hints_void(MyDatabaseId);
		/* a prepared transaction may have changed the database's settings */
		(void) database_call(MyDatabaseId, CALL_SETTINGS);
		database_publish_due(MyDatabaseId, DT_NOBEGIN);
	}
	if (look_at_all || look_at_schedules)
		(void) database_call(MyDatabaseId, CALL_SCHEDULES);
	for (int i = 0; i < touched_count; i++)
	{
		if (touched[i].released || (committed ? touched[i].jobs > 0 : touched[i].taken_at > 0))
			publish_lane(&touched[i]);
		if (committed && touched[i].lease_ends != DT_NOEND &&
			lane_hint_revisit(touched[i].lane, touched[i].lease_ends, true))
			touched[i].wake = true;
		if (committed && touched[i].succeeded > 0)
			publish_success(&touched[i]);
		if (touched[i].released)
			publish_released(&touched[i]);
		if (touched[i].key_ends && touched[i].of_values)
			publish_passed_of_values(&touched[i]);
		if (touched[i].key_ends && lane_hint_publish_passed(touched[i].lane, touched[i].passed_count))
			touched[i].wake = true;
	}

	/* only now, so that a process that is woken sees all that there is, and takes the most urgent */
	for (int i = 0; i < touched_count; i++)
	{
		if (touched[i].wake)
			wake_processes(&touched[i]);
		if (touched[i].limited_at > 0)
			publish_limited(touched[i].lane);
	}
	if (sweep_parked)
		(void) database_call(MyDatabaseId, CALL_SWEEP);
	if (first_due != DT_NOEND)
	{
		(void) database_publish_due(MyDatabaseId, first_due);
		wake_for_due();
	}
	if (requests_announced)
		end_announcements(requests.count, committed);
	if (prepared_ended)
		waiters_wake_all();
	else if (look_at_all)
		waiters_wake_lanes(MyDatabaseId);
}

/*
 * Before the locks are released: a process that gets a slot of a limit that we free must see what became
 * claimable with it, or a later job of its key could overtake. It is published once more afterwards, for
 * processes that looked in between and were refused.
 */
static void
publish_before_release(bool committed)
{
	bool		limited = false;

	for (int i = 0; i < touched_count && !limited; i++)
		limited = touched[i].limited_at > 0;
	for (int i = 0; i < touched_count && limited; i++)
		if (committed ? touched[i].jobs > 0 : touched[i].taken_at > 0)
			(void) lane_hint_publish(touched[i].lane, touched[i].position);
}

void
wakeup_defined(void)
{
	defined = true;
}

void
wakeup_roles_changed(void)
{
	roles_changed = true;
}

void
wakeup_transaction_end(XactEvent event)
{
	bool		committed = event == XACT_EVENT_COMMIT;

	if (committed && touched_count > 0)
		test_point("committed");
	location_end_transaction(committed);
	/* one that is prepared will not be heard of again here, and mostly commits */
	duplicates_end_transaction(event != XACT_EVENT_ABORT);
	if (event != XACT_EVENT_PREPARE)
		publish_before_release(committed);
	key_hints_end_transaction();
	if (event == XACT_EVENT_PREPARE)
	{
		news_forget_transaction();
		forget_wakeups();				/* COMMIT PREPARED or ROLLBACK PREPARED will look at everything */
	}
	else
		ended = committed ? ENDED_COMMIT : ENDED_ROLLBACK;
}

/* Publishes what the rollback of a savepoint has freed in a lane. */
static void
publish_undone_lane(TouchedLane *lane)
{
	if (lane->limited_at >= undone_level)
		publish_limited(lane->lane);
	if (Max(lane->taken_at, lane->relied_at) < undone_level)
		return;
	publish_lane(lane);
	wake_processes(lane);
}

/*
 * The savepoint of that level has ended: what was noted in it belongs to the level above, where it is not
 * undone. That of the transaction itself needs no notes.
 */
static void
leave_level(int nest_level, bool undone)
{
	int			first = savepoint_notes_first(&level_notes, nest_level);
	LevelNote  *notes = level_notes.notes;

	for (int i = first; i < level_notes.count; i++)
	{
		TouchedLane *lane = &touched[notes[i].lane];

		if (undone)
			publish_undone_lane(lane);
		lane->relied_at = Min(lane->relied_at, nest_level - 1);
		lane->taken_at = Min(lane->taken_at, nest_level - 1);
		lane->limited_at = Min(lane->limited_at, nest_level - 1);
		notes[i].nest_level = nest_level - 1;
	}
	if (nest_level <= 2)
		level_notes.count = first;
}

/*
 * A savepoint's rollback frees the jobs taken, or relied on, in it: no need to wait for the whole
 * transaction.
 */
void
wakeup_savepoint_event(SubXactEvent event)
{
	int			nest_level = GetCurrentTransactionNestLevel();
	const LevelNote *notes = level_notes.notes;

	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		leave_level(nest_level, false);
		return;
	}
	for (int i = savepoint_notes_first(&level_notes, nest_level); i < level_notes.count; i++)
	{
		const TouchedLane *lane = &touched[notes[i].lane];

		if (lane->taken_at >= nest_level)
			/* as publish_before_release() */
			(void) lane_hint_publish(lane->lane, lane->position);
	}
	key_hints_end_savepoint();
	first_due = Min(first_due, first_due_if_undone);	/* if it was noted in the savepoint, or not */
	undone_level = nest_level;
	ended = ENDED_SAVEPOINT;
}

/*
 * By now other sessions find rows and holds free, and get the server's invalidation messages for definitions
 * that have changed. A portal's locks can be released by itself: then nothing has ended.
 */
void
wakeup_after_locks(void)
{
	switch (ended)
	{
		case ENDED_NOTHING:
			return;
		case ENDED_COMMIT:
			news_end_transaction();	/* first: a job that is woken may end at once */
			publish_wakeups(true);
			forget_wakeups();
			break;
		case ENDED_ROLLBACK:
			publish_wakeups(false);
			news_end_transaction();
			forget_wakeups();
			break;
		case ENDED_SAVEPOINT:
			news_undo_savepoint(undone_level);
			leave_level(undone_level, true);
			/* the scheduler may have passed by due jobs that a claim had in the savepoint */
			if (first_due_if_undone != DT_NOEND && database_publish_due(MyDatabaseId, first_due_if_undone))
				wake_for_due();
			break;
	}
	ended = ENDED_NOTHING;
}

/* The prepared transaction has ended; or has not, if an error or the end of our process came before. */
static void
end_doubt(void)
{
	if (!in_doubt)
		return;
	in_doubt = false;
	location_end_doubt();
	key_hints_end_doubt();
	live_counts_forget(MyDatabaseId);
}

/* Ends the doubt about this session's COMMIT PREPARED if the session ends in it. */
static void
doubt_at_exit(int code, Datum argument)
{
	end_doubt();
}

/* Not PG_ENSURE_ERROR_CLEANUP: the server's own code registers a callback in there. */
static void
begin_doubt(void)
{
	static bool registered = false;

	if (!registered)
		before_shmem_exit(doubt_at_exit, (Datum) 0);
	registered = true;
	in_doubt = true;
	location_begin_doubt();
	key_hints_begin_doubt();
}

void
wakeup_utility(UtilityCall *call)
{
	Node	   *node = call->statement->utilityStmt;
	bool		ends_prepared = false;

	if (IsA(node, TransactionStmt))
	{
		TransactionStmtKind kind = ((TransactionStmt *) node)->kind;

		ends_prepared = kind == TRANS_STMT_COMMIT_PREPARED || kind == TRANS_STMT_ROLLBACK_PREPARED;
	}
	if (!ends_prepared)
	{
		utility_proceed(call);
		return;
	}
	wakeup_all();				/* when our own transaction ends, which is after the prepared one */
	prepared_ended = true;
	news_lose_at_end();
	defined = true;
	begin_doubt();
	PG_TRY();
	{
		utility_proceed(call);
		test_point("prepared_ended");
	}
	PG_FINALLY();
	{
		end_doubt();
	}
	PG_END_TRY();
}
