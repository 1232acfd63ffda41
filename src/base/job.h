/*
 * job.h
 *		What a job is. No table access here.
 *
 * worker	a named kind of job: its handler and its attributes
 * job		one unit of work: worker and args
 * lane		what jobs of one worker, queue and owner wait in
 * executor	a background worker process that runs jobs
 * claimant	an application that claims jobs by SQL
 * lease	a claim written to the job's row, which holds for a time
 * attempt	one start of a job
 */
#ifndef QUEUE_JOBS_JOB_H
#define QUEUE_JOBS_JOB_H

#include "access/xlogdefs.h"
#include "compat.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

/* ---- Where a job's data are read from: GitLab's table, and nothing else ---- */

/*
 * Jobs that may read from a replica start no sooner than this after they were enqueued: it is to catch up
 * meanwhile.
 */
#define CONSISTENCY_START_DELAY USECS_PER_SEC

/*
 * How long a "delayed" job is put back, once, when no replica has caught up. (GitLab: Sidekiq's first retry,
 * 15 to 24 s.)
 */
#define CONSISTENCY_RETRY_DELAY (5 * USECS_PER_SEC)

#define READ_FROM_PRIMARY "primary"

typedef enum DataConsistency
{
	CONSISTENCY_ALWAYS,			/* what the job reads comes from the primary */
	CONSISTENCY_STICKY,			/* from a replica that has caught up, else from the primary */
	CONSISTENCY_DELAYED,		/* the same, but put back once before it turns to the primary */
} DataConsistency;

/* The choice, by GitLab's names for it. */
typedef enum LoadBalancingStrategy
{
	STRATEGY_NONE,				/* there was nothing to choose */
	STRATEGY_PRIMARY,
	STRATEGY_REPLICA,
	STRATEGY_REPLICA_RETRIED,	/* a replica, for a "delayed" job that had been tried before */
	STRATEGY_RETRY,				/* put back until a replica has caught up */
	STRATEGY_PRIMARY_NO_WAL,	/* there is no location that a replica could be asked for */
	LOAD_BALANCING_STRATEGIES
} LoadBalancingStrategy;

/* The name; NULL for STRATEGY_NONE. */
extern const char *load_balancing_name(LoadBalancingStrategy strategy);

/* STRATEGY_NONE for a name that is NULL or unknown. */
extern LoadBalancingStrategy load_balancing_strategy(const char *name);

/*
 * caught_up: a replica has replayed the job's location. retried: the job has been started, or put back,
 * before.
 */
extern LoadBalancingStrategy consistency_choose(DataConsistency consistency, bool location_known,
												bool caught_up, bool retried);

/* Whether the strategy reads from a replica. */
extern bool reads_from_replica(LoadBalancingStrategy strategy);

/* The bits of Job.encrypted: which parts of a job are ciphertext (encrypted_job.h). */
#define ENCRYPTED_ARGS 1		/* values of args, and the texts of its errors */
#define ENCRYPTED_RESULT 2
#define ENCRYPTS_RESULT 4		/* the run's result will be encrypted */

/* A time that is not set. No job can be given an infinite time (enqueue refuses them). */
#define NO_TIME DT_NOBEGIN
#define MAX_JOB_CRASHES 3
#define MAX_ERROR_LENGTH 10000	/* bytes of an error's text that are kept; Sidekiq keeps as many characters */
#define MAX_KEPT_ERRORS 25		/* attempts whose errors are kept: the first and the latest */
#define MAX_NAME_LENGTH 200		/* bytes of a worker's, queue's or claimant's name */

typedef enum JobState
{
	JOB_SCHEDULED,				/* due later */
	JOB_AVAILABLE,
	JOB_EXECUTING,
	JOB_RETRYABLE,				/* failed, waits for its next attempt */
	JOB_WAITING,				/* for other jobs, or a signal */
	JOB_COMPLETED,
	JOB_CANCELLED,
	JOB_DEAD,
} JobState;

typedef enum JobEvent
{
	EVENT_FALLS_DUE,
	EVENT_STARTS,
	EVENT_SUCCEEDS,
	EVENT_FAILS,
	EVENT_FAILS_FINALLY,
	EVENT_IS_PUT_BACK,			/* snoozed */
	EVENT_IS_INTERRUPTED,		/* its executor was stopped, or its lease ran out: free again at once */
	EVENT_IS_CANCELLED,			/* cancel(), or its expires_in has passed */
	EVENT_IS_DISCARDED,
	EVENT_IS_RETRIED,			/* retry() */
	EVENT_WAITS,				/* wait_for_signal() */
	EVENT_IS_RELEASED,			/* what it waited for has come */
} JobEvent;

/*
 * The number of a lane, as processes know it: that of its row. Jobs of a worker with a fair_key wait apart,
 * those of each value of it: for them it has the value's hash, which is not 0, in its upper half.
 */
static inline int32
lane_row(int64 lane)
{
	return (int32) lane;
}

static inline int32
lane_value(int64 lane)
{
	return (int32) (lane >> 32);
}

static inline int64
lane_of_value(int64 lane, int32 value)
{
	return (int64) value << 32 | (uint32) lane_row(lane);
}

/* The place of a job in its lane. */
typedef struct LanePosition
{
	int32		priority;
	int64		id;
} LanePosition;

static const LanePosition lowest_position = {PG_INT32_MIN, PG_INT64_MIN};	/* before every job */
static const LanePosition highest_position = {PG_INT32_MAX, PG_INT64_MAX};	/* behind every job */

/* A member for each column (job_columns.h), and what is known of a job while a process has it. */
#define Job_bigint int64
#define Job_lane_number int64
#define Job_integer int32
#define Job_smallint int16
#define Job_boolean bool
#define Job_timestamptz TimestampTz	/* or NO_TIME */
#define Job_text char *				/* or NULL */
#define Job_jsonb Jsonb *				/* or NULL */
#define Job_pg_lsn XLogRecPtr			/* or InvalidXLogRecPtr */
#define Job_regrole Oid				/* or InvalidOid */
#define Job_strategy LoadBalancingStrategy	/* or STRATEGY_NONE */
#define Job_float8 float8
#define JOB_COLUMN(name, type) Job_##type name;
#define LIVE_COLUMN(name, type) JOB_COLUMN(name, type)
#define FINISHED_COLUMN(name, type) JOB_COLUMN(name, type)
typedef struct Job
{
#include "job_columns.h"
	Jsonb	   *read;			/* what its read handler returned, while it runs */
	Jsonb	   *results;		/* what the jobs that it has waited for returned, while it runs */
	Jsonb	   *clear_args;		/* what was decrypted for its run, or NULL */
	Jsonb	   *compressed_args;	/* large args as they came from a row (live_row.h), or NULL */
	Jsonb	   *compressed_of;	/* the args that are compressed there */
	bool		has_progress;

	/*
	 * run_at is when the job is due. If calls have put it off since it was written to the index, that has an
	 * earlier time, by which the job is found too soon; NO_TIME: the index has run_at.
	 */
	TimestampTz indexed_at;
} Job;

extern const char *job_state_name(JobState state);
extern bool job_transition(JobState from, JobEvent event, JobState *to);
extern int	lane_position_compare(const LanePosition *a, const LanePosition *b);
extern LanePosition job_position(const Job *job);

/* How many failures the job has seen, with which its retry delay and its end are reckoned. */
extern int	job_failures(const Job *job);
extern int	job_max_attempts(const Job *job, int max_retries);

/* Whether it is too late for its first start. */
/* The time at which the index has a job that is not due: a debounced one may be due later than that. */
extern TimestampTz job_found_at(const Job *job);

extern bool job_expired(const Job *job, TimestampTz now);

/* Adds the failure of an attempt to job->errors; the text is cut to MAX_ERROR_LENGTH. */
extern void job_add_error(Job *job, int attempt, TimestampTz started_at, TimestampTz failed_at,
						  const char *sqlstate, const char *message, const char *detail, const char *context);

/* Adds the error of an attempt whose lease or executor is gone without an outcome. */
#define LAPSED_SQLSTATE "QJ001"
extern char *job_lapsed_message(const Job *job);
extern void job_add_lapse(Job *job, TimestampTz now);

extern char *job_last_error(const Jsonb *errors);

/* Keys of Job.options; durations are in microseconds. */
#define JOB_MAX_RETRIES "max_retries"
#define JOB_TIMEOUT "timeout"
#define JOB_KEEP_COMPLETED "keep_completed"
#define JOB_TAGS "tags"

/* The number that options have under the key; "none" if they have none from 0 to "most". */
extern int64 job_option(const Jsonb *options, const char *key, int64 most, int64 none);

/* The job's own tags as text[]; a null pointer: none. */
extern Datum job_tags(const Job *job);

/*
 * The length of the value's text, as jsonb is shown, in bytes; if that is more than "limit", some number
 * above the limit. The size of the value does not tell it: the text of 16 bytes may have 131,072.
 */
extern int64 jsonb_text_length(Jsonb *json, int64 limit);

/* Whether the value is so small that it fits into any other value, and its text into any row. */
extern bool jsonb_is_small(const Jsonb *json);

/*
 * ERROR if the value's text is so long that no session, and no dump, could read a row that has it, or if it
 * is nested so deep that some process could not. The message calls the value "what".
 */
extern void jsonb_check_text(Jsonb *json, const char *what);

/* JSON as jsonb; ERROR if it is none. */
extern Jsonb *jsonb_parse(const char *json);

extern JsonbValue jsonb_string(const char *text);

/* The value of an object's key; NULL if there is none, or that is no object. */
extern JsonbValue *jsonb_member(const JsonbContainer *object, const char *key);

/* Return a member as a string, or as a whole number; NULL, or "none", if it is not of that type. */
extern char *jsonb_member_string(const JsonbContainer *object, const char *key);
extern int64 jsonb_member_number(const JsonbContainer *object, const char *key, int64 none);

extern void jsonb_push_member(QjJsonbState *state, const char *key, JsonbValue *value);

/*
 * Sums of a time and a duration in microseconds that stay within the calendar; a clock that cannot be set.
 *
 * A row must have no time outside of it: the server refuses to show it, so that views and pg_dump fail.
 */

#define CALENDAR_HINT "Give an earlier time, or a shorter interval: the calendar ends with the year 294276."

/* later - earlier, or the longest duration there is. */
extern int64 calendar_difference(TimestampTz later, TimestampTz earlier);

/* False if the calendar has no such time. */
extern bool calendar_sum(TimestampTz time, int64 duration, TimestampTz *sum);

/* The calendar's last time, or its first, if there is no such time. */
extern TimestampTz calendar_bounded_sum(TimestampTz time, int64 duration);

/* ERROR if there is no such time; "name" is the parameter that gave the duration. */
extern TimestampTz calendar_checked_sum(TimestampTz time, int64 duration, const char *name);

/*
 * Microseconds of a clock that cannot be set. Its beginning means nothing; all processes have the same one.
 */
extern int64 clock_elapsed(void);

/*
 * The present, as far as jobs are due by it, and delays, retries and expiries count from it. Within run_due()
 * that is the clock that its caller gives, job_clock_ahead microseconds from the server's; everywhere else it
 * is the server's. Leases, rates and what processes tell each other go by GetCurrentTimestamp().
 */
extern int64 job_clock_ahead;
extern TimestampTz job_now(void);

/* ---- When a failed job is tried again ---- */

/*
 * Delays beyond this are cut: a wrong backoff function must not overflow the time, nor hide a job for ever.
 */
#define MAX_RETRY_DELAY (INT64CONST(365) * USECS_PER_DAY)

/* Sidekiq's delay after failure number "failures" (from 0), in microseconds. */
extern int64 retry_default_delay(int failures);

/* now + delay, with the delay cut to 0 .. MAX_RETRY_DELAY. */
extern TimestampTz retry_at(TimestampTz now, int64 delay);

#endif
