/*
 * signals.c
 *		signal(), signal_payload(), wait_for_signal(); signals() and another wait_for_signal() for claimants.
 *
 * A signal is a row of its own, which is there before the sender looks for nothing: whether the job waits for
 * it the scheduler sees after the sender's commit, and once more after the job's, if it was just about to
 * wait.
 */
#include "postgres.h"

#include "arguments.h"
#include "claimant.h"
#include "current_job.h"
#include "end_news.h"
#include "fmgr.h"
#include "job.h"
#include "job_control.h"
#include "lane.h"
#include "live_table.h"
#include "long_job.h"
#include "subscription.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(queue_jobs_signal);
PG_FUNCTION_INFO_V1(queue_jobs_signal_payload);
PG_FUNCTION_INFO_V1(queue_jobs_signals);
PG_FUNCTION_INFO_V1(queue_jobs_wait_for_signal);
PG_FUNCTION_INFO_V1(queue_jobs_wait_for_signal_claimed);

/* Whether the job has not ended; ERROR if it is another role's. */
static bool
is_live(int64 id)
{
	LiveTable	table;
	Job			job;
	bool		live;

	if (current_job.job != NULL && current_job.job->id == id)
		return true;
	live_open(&table);
	live = live_look_up(&table, id, &job) != LOOK_NONE;
	if (live)
		job_check_owner(id, lane_get(job.lane));
	live_close(&table);
	return live;
}

/* signal(job, name, payload): true if it is the first of that name */
Datum
queue_jobs_signal(PG_FUNCTION_ARGS)
{
	char	   *name;
	Jsonb	   *payload;
	int64		id;
	bool		first;

	refuse_where_nothing_can_be_written("queue_jobs.signal()");
	refuse_null(fcinfo, 0, "job");
	name = name_argument(fcinfo, 1, "name", "signal");
	refuse_null(fcinfo, 2, "payload");
	payload = PG_GETARG_JSONB_P(2);
	jsonb_check_text(payload, "the payload");
	id = PG_GETARG_INT64(0);
	if (!is_live(id))
		PG_RETURN_BOOL(false);
	first = job_signal_add(id, name, payload);
	if (first)
		news_note(NEWS_SIGNAL, id);
	PG_RETURN_BOOL(first);
}

/* signal_payload(name): NULL if it has not come */
Datum
queue_jobs_signal_payload(PG_FUNCTION_ARGS)
{
	Jsonb	   *payload;

	current_job_require("queue_jobs.signal_payload()");
	payload = job_signal_payload(current_job.job->id, name_argument(fcinfo, 0, "name", "signal"));
	if (payload == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(payload);
}

/* signals(id): an object of the payloads by name, for those who may see the job's steps */
Datum
queue_jobs_signals(PG_FUNCTION_ARGS)
{
	return job_object(fcinfo, job_signals_of);
}

/* In microseconds; NO_TIMEOUT if it is NULL. */
static int64
timeout_argument(FunctionCallInfo fcinfo, int arg)
{
	return PG_ARGISNULL(arg) ? NO_TIMEOUT : wait_argument(fcinfo, arg, "timeout");
}

/* wait_for_signal(name, timeout): when the handler returns, the job waits */
Datum
queue_jobs_wait_for_signal(PG_FUNCTION_ARGS)
{
	char	   *name;

	current_job_require("queue_jobs.wait_for_signal()");
	name = name_argument(fcinfo, 0, "name", "signal");
	current_job_wait_for(name, timeout_argument(fcinfo, 1));
	PG_RETURN_VOID();
}

/*
 * wait_for_signal(id, attempt, name, timeout): true if the signal is there, and the job can be claimed again
 * at once. The scheduler looks at the job after our commit, and sees a signal that comes meanwhile.
 */
Datum
queue_jobs_wait_for_signal_claimed(PG_FUNCTION_ARGS)
{
	Claimed		claimed;
	char	   *name;
	int64		timeout;
	bool		has_come;

	refuse_where_nothing_can_be_written("queue_jobs.wait_for_signal()");
	refuse_null(fcinfo, 0, "id");
	refuse_null(fcinfo, 1, "attempt");
	name = name_argument(fcinfo, 2, "name", "signal");
	timeout = timeout_argument(fcinfo, 3);
	claimed_begin(&claimed, PG_GETARG_INT64(0), PG_GETARG_INT32(1));
	claimed.job.expires_at = NO_TIME;	/* it was started in time */
	has_come = job_signal_payload(claimed.job.id, name) != NULL;
	if (!has_come)
	{
		waiting_for_signal(&claimed.job, name,
						   timeout == NO_TIMEOUT ? DT_NOEND : GetCurrentTimestamp() + timeout);
		news_note(NEWS_WAITS, claimed.job.id);
	}
	claimed_put_back(&claimed, 0);
	PG_RETURN_BOOL(has_come);
}
