/*
 * run_log.c
 *		One line of JSON for a run, or for a job that died without one.
 */
#include "postgres.h"

#include "compat.h"
#include "job.h"
#include "lib/stringinfo.h"
#include "run_log.h"
#include "settings.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/numeric.h"

static void
add_string(StringInfo line, const char *key, const char *value)
{
	appendStringInfo(line, "%s\"%s\": ", line->len > 1 ? ", " : "", key);
	escape_json(line, value);
}

static bool
has_name(List *names, const JsonbValue *name)
{
	ListCell   *cell;

	foreach(cell, names)
		if (strlen(lfirst(cell)) == (size_t) name->val.string.len &&
			memcmp(lfirst(cell), name->val.string.val, name->val.string.len) == 0)
			return true;
	return false;
}

/*
 * The args without what might be secret: numbers stay, and what the worker declares. A key of its own tells
 * nothing.
 */
static Jsonb *
loggable_args(List *names, Jsonb *args)
{
	QjJsonbState state = {0};
	JsonbIterator *iterator = JsonbIteratorInit(&args->root);
	JsonbValue	key;
	JsonbValue	value;
	JsonbIteratorToken token;

	QjPushJsonb(&state, WJB_BEGIN_OBJECT, NULL);
	(void) JsonbIteratorNext(&iterator, &value, false);
	while ((token = JsonbIteratorNext(&iterator, &key, true)) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&iterator, &value, true);
		if (value.type != jbvNumeric && !has_name(names, &key))
			continue;
		QjPushJsonb(&state, WJB_KEY, &key);
		QjPushJsonb(&state, WJB_VALUE, &value);
	}
	QjPushJsonb(&state, WJB_END_OBJECT, NULL);
	return JsonbValueToJsonb(state.result);
}

static void
add_jsonb(StringInfo line, const char *key, Jsonb *value)
{
	appendStringInfo(line, ", \"%s\": ", key);
	JsonbToCString(line, &value->root, VARSIZE(value));
}

static void
add_measure(StringInfo line, const Job *job, const RunMeasure *measure)
{
	appendStringInfo(line, ", \"queueing_s\": %.6f, \"run_s\": %.6f",
					 (double) measure->queueing / USECS_PER_SEC, (double) measure->running / USECS_PER_SEC);
	if (measure->cpu >= 0)
		appendStringInfo(line, ", \"cpu_s\": %.6f", (double) measure->cpu / USECS_PER_SEC);
	add_string(line, "read_from", job->read_from ? job->read_from : READ_FROM_PRIMARY);
}

/* measure: NULL if the job died without a run. */
static void
write_line(const Worker *worker, List *loggable, const Lane *lane, const Job *job, const RunMeasure *measure,
		   JobState state, const char *sqlstate, const char *error)
{
	StringInfoData line;

	initStringInfo(&line);
	appendStringInfoChar(&line, '{');
	add_string(&line, "worker", worker->name);
	add_string(&line, "queue", lane->queue);
	appendStringInfo(&line, ", \"id\": " INT64_FORMAT ", \"attempt\": %d", job->id, job->attempt);
	add_string(&line, "status", job_state_name(state));
	if (measure != NULL)
		add_measure(&line, job, measure);
	if (job->context != NULL)
		add_jsonb(&line, "context", job->context);
	if (JB_ROOT_IS_OBJECT(job->args))
		add_jsonb(&line, "args", loggable_args(loggable, job->args));
	if (error != NULL)
	{
		add_string(&line, "sqlstate", sqlstate ? sqlstate : "");
		if (!(job->encrypted & ENCRYPTED_ARGS)) /* it may show what the args are */
			add_string(&line, "error", error);
	}
	appendStringInfoChar(&line, '}');
	ereport(LOG, (errmsg_internal("%s", line.data), errhidestmt(true), errhidecontext(true)));
	pfree(line.data);
}

void
run_log(const Worker *worker, List *loggable, const Lane *lane, const Job *job, const RunMeasure *measure,
		JobState state, const char *sqlstate, const char *error)
{
	if (queue_jobs_log_jobs == LOG_JOBS_ALL || (queue_jobs_log_jobs == LOG_JOBS_FAILURES && error != NULL))
		write_line(worker, loggable, lane, job, measure, state, sqlstate, error);
}

void
run_log_death(const Worker *worker, const Job *job, const char *sqlstate, const char *error)
{
	const Lane *lane = lane_get(job->lane);
	WorkerTexts texts;

	if (queue_jobs_log_jobs != LOG_JOBS_NONE && lane != NULL)
		write_line(worker, worker_texts(worker, &texts) ? texts.loggable_args : NIL, lane, job, NULL,
				   JOB_DEAD, sqlstate, error);
}
