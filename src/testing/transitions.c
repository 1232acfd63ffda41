/*
 * transitions.c
 *		transitions(): the table of a job's states, for the test that each can be reached.
 */
#include "postgres.h"

#include "executor_slot.h"
#include "funcapi.h"
#include "history.h"
#include "job_control.h"
#include "job_row.h"
#include "live_count.h"
#include "live_row.h"
#include "miscadmin.h"
#include "outcome.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"
#include "wakeup.h"

PG_FUNCTION_INFO_V1(queue_jobs_transitions);

/* transitions(): the table of states in job.c, for its test. */
Datum
queue_jobs_transitions(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (JobState from = JOB_SCHEDULED; from <= JOB_DEAD; from++)
	{
		uint32		seen = 0;		/* states to which an earlier event has led */

		for (JobEvent event = EVENT_FALLS_DUE; event <= EVENT_IS_RELEASED; event++)
		{
			JobState	to;
			Datum		values[2];
			bool		nulls[2] = {0};

			if (!job_transition(from, event, &to) || (seen & STATE_BIT(to)) != 0)
				continue;
			seen |= STATE_BIT(to);
			values[0] = CStringGetTextDatum(job_state_name(from));
			values[1] = CStringGetTextDatum(job_state_name(to));
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
		}
	}
	return (Datum) 0;
}
