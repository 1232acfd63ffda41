/*
 * action.c
 *		What can be done. Each action is one statement, in a transaction of its own, as the
 *		viewer's role.
 *
 * One that cannot be taken back asks first: its form without the field "sure" is answered with a
 * page that asks, whose form has it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "filter.h"
#include "page.h"

typedef struct Action
{
	const char *name;
	const char *label;			/* of the button that does it */
	const char *sql;			/* returns nothing, whether it did something, or to how many */
	const char *fields[3];		/* the form's, in the order of the parameters */
	const char *question;		/* asked first; NULL: none */
	const char *done;
	const char *undone;			/* false was returned, or NULL */
	const char *dry_run;		/* of all that match: how many */
} Action;

#define MATCHING(name, label, function, question, done) \
	{name, label, "SELECT queue_jobs." function "(" FILTER_ARGUMENTS ")", {NULL}, question, done, NULL, \
	"SELECT queue_jobs." function "(" FILTER_ARGUMENTS ", dry_run => true)"}
#define MARKED(name, label, function, question, done) \
	{name, label, "SELECT count(*) FILTER (WHERE queue_jobs." function "(id)) FROM unnest($1::bigint[]) id", {"ids"}, question, done, NULL, NULL}

static const Action actions[] = {
	{"retry", "Retry", "SELECT queue_jobs.retry($1::bigint)", {"id"}, NULL, "The job runs again.", "The job was not retried: it runs, or has completed.", NULL},
	{"cancel", "Cancel the job", "SELECT queue_jobs.cancel($1::bigint)", {"id"}, "Cancel the job? If it runs, its run is interrupted.", "The job is cancelled.",
	"There was nothing to cancel: the job has ended.", NULL},
	{"discard", "Discard the job", "SELECT queue_jobs.discard($1::bigint)", {"id"}, "Discard the job? It is dead then, and does not run unless it is retried.",
	"The job is dead.", "There was nothing to discard: the job has ended.", NULL},
	MARKED("retry_marked", "Retry them", "retry", "Retry the marked jobs?", "retried"),
	MARKED("cancel_marked", "Cancel them", "cancel", "Cancel the marked jobs? Those that run are interrupted.", "cancelled"),
	MARKED("discard_marked", "Discard them", "discard", "Discard the marked jobs?", "discarded"),
	MATCHING("retry_matching", "Retry them", "retry_jobs", "Retry all jobs that match?", "retried"),
	MATCHING("cancel_matching", "Cancel them", "cancel_jobs", "Cancel all jobs that match? Those that run are interrupted.", "cancelled"),
	MATCHING("discard_matching", "Discard them", "discard_jobs", "Discard all jobs that match?", "discarded"),
	{"pause", "Pause", "SELECT queue_jobs.pause($1)", {"queue"}, NULL, "The queue is paused.", "The queue is paused.", NULL},
	{"resume", "Resume", "SELECT queue_jobs.resume($1)", {"queue"}, NULL, "The queue runs again.", "The queue runs again.", NULL},
	{"migrate", "Move them", "SELECT queue_jobs.migrate_queue($1, $2)", {"from", "to"}, "Move all jobs that wait in the first queue to the second?", "moved", NULL, NULL},
	{"disable", "Disable the worker", "SELECT queue_jobs.disable_worker($1)", {"worker"},
	"Disable the worker? From now on enqueues of it leave nothing, and its waiting jobs are held.", "The worker is disabled.", "The worker is disabled.", NULL},
	{"enable", "Enable", "SELECT queue_jobs.enable_worker($1)", {"worker"}, NULL, "The worker is enabled.", "The worker is enabled.", NULL},
	{"close_breaker", "Close the breaker", "SELECT queue_jobs.close_breaker($1)", {"worker"}, NULL, "Jobs of the worker begin again.",
	"Jobs of the worker begin: it was not broken any more.", NULL},
	{"run_now", "Run now", "SELECT queue_jobs.run_now($1) IS NOT NULL", {"schedule"}, NULL, "Its job is enqueued.",
	"No job was made: the last one has not ended, or the worker is disabled.", NULL},
	{"run_missed", "Enqueue them", "SELECT queue_jobs.run_missed($1, $2::timestamptz)", {"schedule", "since"},
	"Enqueue a job for each tick of the schedule since then, whether it had one or not?", "enqueued", NULL, NULL},
	{"pause_schedule", "Pause", "SELECT queue_jobs.pause_schedule($1)", {"schedule"}, NULL, "The schedule is paused.", "The schedule is paused.", NULL},
	{"resume_schedule", "Resume", "SELECT queue_jobs.resume_schedule($1)", {"schedule"}, NULL, "The schedule ticks again.", "The schedule ticks again.", NULL},
	{"cancel_batch", "Cancel the batch", "SELECT queue_jobs.cancel_batch($1::bigint)", {"batch"}, "Cancel all jobs of the batch that are not finished?", "cancelled", NULL, NULL},
	{"retry_batch", "Retry", "SELECT queue_jobs.retry_batch($1::bigint)", {"batch"}, NULL, "retried", NULL, NULL},
	{"close_limit", "Close", "SELECT queue_jobs.close_limit($1, $2::interval)", {"limit", "duration"}, NULL, "The limit is closed.", "The limit is closed.", NULL},
	{"open_limit", "Open", "SELECT queue_jobs.open_limit($1)", {"limit"}, NULL, "The limit is open.", "The limit is open.", NULL},
	{"change_limit", "Change", "SELECT queue_jobs.define_limit(name, $2::int, rate, period) FROM queue_jobs.named_limit WHERE name = $1", {"limit", "number"},
	NULL, "The limit is changed.", "There is no such limit.", NULL},
	{"change_rate", "Change", "SELECT queue_jobs.define_limit(name, max_running, $2::int, period) FROM queue_jobs.named_limit WHERE name = $1", {"limit", "number"},
	NULL, "The limit is changed.", "There is no such limit.", NULL},
	{"pause_replica", "Pause", "SELECT queue_jobs.pause_replica($1)", {"name"}, NULL, "No job reads from the replica.", "No job reads from the replica.", NULL},
	{"resume_replica", "Resume", "SELECT queue_jobs.resume_replica($1)", {"name"}, NULL, "Jobs may read from the replica.", "Jobs may read from the replica.", NULL},
};

typedef struct Call
{
	const Action *action;
	Filter		filter;
	Buffer		ids;			/* of the marked, as an array */
	int			id_count;
	int			count;			/* of the values */
	const char *values[FILTER_VALUES];
} Call;

static const Action *
find_action(const char *name)
{
	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
		if (strcmp(actions[i].name, name) == 0)
			return &actions[i];
	return NULL;
}

/* False: one of them is no id. */
static bool
read_ids(Call *call, const Params *form)
{
	long long	id;

	add_raw(&call->ids, "{");
	for (int i = 0; i < form->count; i++)
	{
		if (strcmp(form->list[i].name, "id") != 0)
			continue;
		if (!parse_id(form->list[i].value, &id))
			return false;
		add(&call->ids, call->id_count++ > 0 ? ",%l" : "%l", id);
	}
	add_raw(&call->ids, "}");
	return true;
}

static bool
read_call(Call *call, const Params *form)
{
	if (call->action->dry_run)
	{
		filter_read(&call->filter, form);
		memcpy(call->values, call->filter.values, sizeof(call->values));
		call->count = FILTER_VALUES;
		return true;
	}
	for (; call->count < 3 && call->action->fields[call->count]; call->count++)
	{
		const char *field = call->action->fields[call->count];

		if (strcmp(field, "ids") == 0)
		{
			if (!read_ids(call, form))
				return false;
			call->values[call->count] = call->ids.data;
		}
		else if ((call->values[call->count] = param_given(form, field)) == NULL)
			return false;
	}
	return true;
}

static const char *
back_of(Page *page)
{
	const char *back = param(&page->form, "back");

	return is_local_path(back, options.prefix) ? back + strlen(options.prefix) : "/";
}

static void
add_problem(Page *page, const Answer *answer, int status)
{
	Buffer	   *out = &page->out;

	page->status = status;
	page_begin(page, "Nothing was done", NULL);
	add(out, "<div class=\"problem\" role=\"alert\"><p><strong>%h</strong></p>", answer->message);
	if (answer->detail)
		add(out, "<p>%h</p>", answer->detail);
	if (answer->hint)
		add(out, "<p class=\"hint\">%h</p>", answer->hint);
	add(out, "<p><small>SQLSTATE %h</small></p></div><p><a href=\"%r%h\">Back</a></p>\n", answer->sqlstate, options.prefix, back_of(page));
	page_end(page);
}

/* What is to be done to what, so that the question can be answered. */
static void
add_objects(Page *page, const Call *call, const Answer *dry_run)
{
	Buffer	   *out = &page->out;

	if (dry_run)
	{
		add_raw(out, "<p><strong>");
		add_count(out, parse_number(PQgetvalue(dry_run->result, 0, 0)));
		add(out, " jobs</strong> match now%r.</p><dl class=\"facts\">", filter_is_empty(&call->filter) ? ": all that you may touch" : "");
	}
	else if (call->ids.length > 0)
		add(out, "<p><strong>%d %r marked.</p><dl class=\"facts\">", call->id_count, call->id_count == 1 ? "job</strong> is" : "jobs</strong> are");
	else
		add_raw(out, "<dl class=\"facts\">");
	for (int i = 0; i < page->form.count; i++)
	{
		const char *name = page->form.list[i].name;

		if (strcmp(name, "token") != 0 && strcmp(name, "back") != 0 && (strcmp(name, "id") != 0 || call->id_count == 0) && *page->form.list[i].value)
			add(out, "<div><dt>%h</dt><dd>%h</dd></div>", name, page->form.list[i].value);
	}
	add_raw(out, "</dl>\n");
}

static void
ask_first(Page *page, const Call *call)
{
	Buffer	   *out = &page->out;
	Answer	   *dry_run = NULL;

	if (call->action->dry_run)
	{
		dry_run = page_keep(page, ask(page->viewer, call->action->dry_run, call->count, call->values));
		/* A dry run may want a transaction that could write. */
		if (dry_run->result == NULL && is_text(dry_run->sqlstate, "25006"))
			dry_run = page_keep(page, act(page->viewer, call->action->dry_run, call->count, call->values));
		if (dry_run->result == NULL)
		{
			add_problem(page, dry_run, 422);
			return;
		}
	}
	page_begin(page, call->action->question, NULL);
	add_objects(page, call, dry_run);
	add(out, "<form method=\"post\" class=\"sure\" action=\"%r/action/%r\">", options.prefix, call->action->name);
	for (int i = 0; i < page->form.count; i++)
		form_hidden(page, page->form.list[i].name, page->form.list[i].value);
	form_hidden(page, "sure", "yes");
	add(out, "<button class=\"main\" autofocus>%r</button> <a href=\"%r%h\">No, go back</a></form>\n", call->action->label, options.prefix, back_of(page));
	page_end(page);
}

/* What came of it, in words. */
static void
say(Page *page, const Call *call, const Answer *answer)
{
	const char *value = PQntuples(answer->result) > 0 && !PQgetisnull(answer->result, 0, 0) ? PQgetvalue(answer->result, 0, 0) : NULL;
	Buffer		text;

	buffer_init(&text);
	if (call->action->undone)
		add_raw(&text, value && *value != 'f' ? call->action->done : call->action->undone);
	else
	{
		add_count(&text, value ? parse_number(value) : 0);
		add(&text, " %r %r.", is_text(value, "1") ? "job" : "jobs", call->action->done);
	}
	if (answer->notices)
		add(&text, " (%r)", answer->notices);
	/* It is kept in a cookie until the next page. */
	if (text.length > 1000)
		text.data[1000] = '\0';
	page->say = text.data;
}

static void
do_it(Page *page, const Call *call)
{
	Answer	   *answer = page_keep(page, act(page->viewer, call->action->sql, call->count, call->values));

	if (answer->result == NULL)
	{
		add_problem(page, answer, 422);
		return;
	}
	say(page, call, answer);
	page_redirect(page, back_of(page));
}

void
page_action(Page *page)
{
	Call	   *call = allocate(sizeof(Call));

	buffer_init(&call->ids);
	call->action = find_action(page->path + strlen("/action/"));
	if (call->action == NULL)
		page_error(page, 404, "Not found", "There is no such action.");
	else if (!read_call(call, &page->form))
		page_error(page, 422, "Nothing was done", "The form does not say to what it is to be done.");
	else if (is_text(call->action->fields[0], "ids") && call->id_count == 0)
		page_error(page, 422, "Nothing was done", "No job is marked.");
	else if (call->action->question && !is_text(param(&page->form, "sure"), "yes"))
		ask_first(page, call);
	else
		do_it(page, call);
	buffer_free(&call->ids);
	free(call);
}
