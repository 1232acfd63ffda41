/*
 * slice.c
 *		Slices of long jobs; see slice.h.
 */
#include "postgres.h"

#include <math.h>

#include "arguments.h"
#include "slice.h"
#include "utils/fmgrprotos.h"

static float8
progress_argument(FunctionCallInfo fcinfo, int arg)
{
	float8		progress = PG_GETARG_FLOAT8(arg);

	if (isnan(progress) || isinf(progress) || progress < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("progress is out of range"),
				 errdetail("The value is %s.",
						   DatumGetCString(DirectFunctionCall1(float8out, Float8GetDatum(progress)))),
				 errhint("Give a finite number that is not negative, or NULL for none.")));
	return progress;
}

Slice
slice_arguments(FunctionCallInfo fcinfo, int cursor_arg, int progress_arg)
{
	Slice		slice = {.has_progress = !PG_ARGISNULL(progress_arg)};

	refuse_null(fcinfo, cursor_arg, "cursor");
	slice.cursor = PG_GETARG_JSONB_P(cursor_arg);
	jsonb_check_text(slice.cursor, "the cursor");
	if (slice.has_progress)
		slice.progress = progress_argument(fcinfo, progress_arg);
	return slice;
}

int64
slice_delay_argument(FunctionCallInfo fcinfo, int arg)
{
	return PG_ARGISNULL(arg) ? 0 : wait_argument(fcinfo, arg, "delay");
}

void
slice_apply(Job *job, const Slice *slice, int32 attempt)
{
	job->cursor = slice->cursor;
	if (slice->has_progress)
	{
		job->has_progress = true;
		job->progress = slice->progress;
	}
	job->uncharged = attempt;
	job->crashes = 0;
}
