/*
 * job_columns.h
 *		The columns of a job: what is written to its row, and read from it.
 *
 * Job (job.h) has a member for each, in this order, and live_row.c and history.c write and read them by this
 * list. An including file defines JOB_COLUMN for columns of both tables, LIVE_COLUMN for those of live_job
 * alone and FINISHED_COLUMN for those of finished_job alone; what it does not define is left out. There is no
 * guard: the list is included several times.
 *
 * A column has its name in SQL, its type there, and what "no value" is, if it is not 0: NO_TIME of a time,
 * NULL of a pointer. No value is NULL in the row, where the column may be NULL. live_row.h has the types.
 */
#ifndef JOB_COLUMN
#define JOB_COLUMN(name, type)
#endif
#ifndef LIVE_COLUMN
#define LIVE_COLUMN(name, type)
#endif
#ifndef FINISHED_COLUMN
#define FINISHED_COLUMN(name, type)
#endif

JOB_COLUMN(id, bigint)
JOB_COLUMN(created_at, timestamptz)
JOB_COLUMN(run_at, timestamptz)
JOB_COLUMN(lane, lane_number)		/* with the value of fair_key: lane_row(), lane_value() */
LIVE_COLUMN(place, bigint)			/* where it waits, if parked (park.c); in Job, 0: in its lane */
JOB_COLUMN(priority, integer)
JOB_COLUMN(version, integer)
JOB_COLUMN(attempt, integer)		/* starts so far */
JOB_COLUMN(uncharged, integer)		/* starts that count as no attempt */
JOB_COLUMN(crashes, smallint)
JOB_COLUMN(merged, integer)			/* duplicates that were merged into it when it was claimed */
FINISHED_COLUMN(dropped, integer)	/* 0.1.0 counted duplicates here; 0 */
JOB_COLUMN(dedup_hash, bigint)		/* of its deduplication key; 0: none */
JOB_COLUMN(dedup_key, text)			/* the token, if the key has one */
LIVE_COLUMN(due, boolean)
JOB_COLUMN(expires_at, timestamptz)
JOB_COLUMN(started_at, timestamptz)	/* none unless a lease is written */
LIVE_COLUMN(lease, bigint)			/* microseconds; 0 with started_at: an executor's */
/* its location (location.h); of one that waits: found when it fell due or was put back */
JOB_COLUMN(wal_lsn, pg_lsn)
JOB_COLUMN(claimant, text)
LIVE_COLUMN(claimed_by, regrole)	/* the claimant's role; none: claimed before 0.2.0 */
JOB_COLUMN(schedule, text)			/* whose tick it is */
JOB_COLUMN(strategy, strategy)		/* how it reads, once that is chosen */
JOB_COLUMN(read_from, text)			/* replica, or READ_FROM_PRIMARY; none: not chosen */
JOB_COLUMN(args, jsonb)				/* as they are stored */
JOB_COLUMN(encrypted, smallint)		/* what of it is ciphertext, or will be; 0: nothing */
JOB_COLUMN(context, jsonb)
JOB_COLUMN(errors, jsonb)			/* array of objects */
JOB_COLUMN(batch, bigint)			/* whose member it is; 0: of none */
JOB_COLUMN(step, text)				/* its name in a workflow */
LIVE_COLUMN(callback, boolean)		/* it is a callback of its batch, and no member */
LIVE_COLUMN(waits, jsonb)			/* what it waits for (long_job.h) */
JOB_COLUMN(cursor, jsonb)			/* where a long job goes on */
JOB_COLUMN(progress, float8)		/* how far it has said it is, if has_progress */
JOB_COLUMN(message, text)			/* what it has said of that */
JOB_COLUMN(options, jsonb)			/* what it has in place of its worker's (worker.h), or NULL */

LIVE_COLUMN(fair, integer)			/* hash of its fair_key's value; in Job always 0: lane has it */
JOB_COLUMN(call, bigint)			/* id that the call took whose args it has (waiting.c); 0: see there */
LIVE_COLUMN(quiet_at, timestamptz)	/* debounced: due then, not at run_at; in Job always NO_TIME */
LIVE_COLUMN(no_later, timestamptz)	/* debounced: no later call puts it off beyond this time */

#undef JOB_COLUMN
#undef LIVE_COLUMN
#undef FINISHED_COLUMN
