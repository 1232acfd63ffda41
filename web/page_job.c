/*
 * page_job.c
 *		One job: what it is, why it does not run, what has happened to it, its neighbours.
 */
#include <string.h>

#include "page.h"

/*
 * Columns of later versions are read from the row as a whole, so that an older one is not an error.
 * Large values are cut.
 */
static const char job_sql[] =
	"SELECT j.id, j.worker, j.queue, j.state, j.priority, j.version, j.attempt, j.max_attempts, j.created_at, j.run_at, j.started_at, "
	"j.finished_at, j.last_error, j.dedup_key, j.wal_lsn, j.owner, j.executor_pid, j.claimant, j.expires_at, j.waits_for, j.data_consistency, "
	"j.merged, j.schedule, j.lease_until, j.read_from, "
	"left(jsonb_pretty(j.args), 200000) AS args, length(j.args::text) AS args_length, left(jsonb_pretty(j.context), 20000) AS context, "
	"left(jsonb_pretty(j.result), 200000) AS result, j.r ->> 'batch' AS batch, left(j.r ->> 'cursor', 2000) AS cursor, "
	"j.r ->> 'progress' AS progress, left(j.r ->> 'message', 200) AS message "
	"FROM (SELECT j.*, to_jsonb(j) - '{args,context,result,errors}'::text[] AS r FROM queue_jobs.job j WHERE j.id = $1::bigint OFFSET 0) j";
/* The link has the tag as an array, for a comma would make two of it. */
static const char tags_sql[] =
	"SELECT tag, ARRAY[tag]::text AS search FROM queue_jobs.job j, "
	"jsonb_array_elements_text(nullif(to_jsonb(j.*) -> 'tags', 'null')) tag WHERE j.id = $1::bigint LIMIT 100";
static const char errors_sql[] =
	"SELECT e ->> 'attempt' AS attempt, (e ->> 'started_at')::timestamptz AS started_at, (e ->> 'failed_at')::timestamptz AS failed_at, "
	"e ->> 'sqlstate' AS sqlstate, e ->> 'message' AS message, left(e ->> 'detail', 20000) AS detail, e ->> 'hint' AS hint, left(e ->> 'context', 20000) AS context "
	"FROM queue_jobs.job j, jsonb_array_elements(j.errors) WITH ORDINALITY x (e, n) WHERE j.id = $1::bigint ORDER BY n DESC LIMIT 50";
static const char explain_sql[] = "SELECT reason, detail, hint FROM queue_jobs.explain_job($1::bigint) ORDER BY n";
static const char batch_sql[] =
	"SELECT id, name, state, jobs, remaining FROM queue_jobs.batch WHERE id = $1::bigint";
static const char neighbours_sql[] =
	"WITH steps AS MATERIALIZED (SELECT step, job, state, after FROM queue_jobs.workflow_step WHERE batch = $1::bigint), "
	"me AS MATERIALIZED (SELECT step, after FROM steps WHERE job = $2::bigint) "
	"SELECT s.step, s.job, s.state, CASE WHEN s.job = $2::bigint THEN 'this' WHEN s.step = ANY (me.after) THEN 'before' ELSE 'after' END AS place "
	"FROM me CROSS JOIN steps s "
	"WHERE s.job = $2::bigint OR s.step = ANY (me.after) OR me.step = ANY (s.after) ORDER BY 4 DESC, s.step LIMIT 200";

static void
add_explanation(Page *page, const char *id)
{
	Buffer	   *out = &page->out;
	Answer	   *reasons = page_ask(page, explain_sql, 1, id);

	add_raw(out, "<section id=\"why\" data-live><h2>Why</h2>");
	if (!is_problem(page, reasons, "function explain_job()"))
	{
		add_raw(out, "<ol class=\"reasons\">");
		for (int i = 0; i < rows(reasons); i++)
			add(out, "<li><span class=\"tag\">%h</span> %h%r%h%r</li>", cell(reasons, i, "reason"), cell(reasons, i, "detail"),
				cell(reasons, i, "hint") ? " <span class=\"hint\">" : "", cell(reasons, i, "hint"), cell(reasons, i, "hint") ? "</span>" : "");
		add_raw(out, "</ol>");
	}
	add_raw(out, "</section>\n");
}

static void
add_buttons(Page *page, const Answer *job)
{
	const char *id = cell(job, 0, "id");
	const char *state = cell(job, 0, "state");
	bool		final = cell(job, 0, "finished_at") != NULL;

	add_raw(&page->out, "<div class=\"bar\" id=\"actions\" data-live>");
	if (strcmp(state, "dead") == 0 || strcmp(state, "cancelled") == 0 || strcmp(state, "retryable") == 0 || strcmp(state, "scheduled") == 0)
		add_button(page, "retry", "id", id, "Retry now", "main");
	if (!final)
	{
		add_button(page, "cancel", "id", id, "Cancel…", "");
		add_button(page, "discard", "id", id, "Discard…", "");
	}
	add_raw(&page->out, "</div>\n");
}

static void
add_fact(Buffer *out, const Answer *job, const char *name, const char *column)
{
	const char *value = cell(job, 0, column);

	if (value)
		add(out, "<div><dt>%r</dt><dd>%h</dd></div>", name, value);
}

static void
add_tags(Page *page, const char *id)
{
	Answer	   *tags = page_ask(page, tags_sql, 1, id);

	if (is_problem(page, tags, "column tags") || rows(tags) == 0)
		return;
	add_raw(&page->out, "<div><dt>Tags</dt><dd>");
	for (int i = 0; i < rows(tags); i++)
		add(&page->out, "%r<a href=\"%r/jobs?tags=%u\">%h</a>", i > 0 ? " " : "", options.prefix, cell(tags, i, "search"), cell(tags, i, "tag"));
	add_raw(&page->out, "</dd></div>");
}

static void
add_facts(Page *page, const Answer *job)
{
	Buffer	   *out = &page->out;

	add_raw(out, "<dl class=\"facts\" id=\"facts\" data-live><div><dt>State</dt><dd>");
	add_state(out, cell(job, 0, "state"));
	add_raw(out, "</dd></div><div><dt>Worker</dt><dd>");
	add_worker_link(out, cell(job, 0, "worker"));
	add_raw(out, "</dd></div><div><dt>Queue</dt><dd>");
	add_queue_link(out, cell(job, 0, "queue"));
	add(out, "</dd></div><div><dt>Attempt</dt><dd>%h of %h</dd></div>", cell(job, 0, "attempt"), cell(job, 0, "max_attempts"));
	add_fact(out, job, "Priority", "priority");
	add_fact(out, job, "Owner", "owner");
	add_fact(out, job, "Executor", "executor_pid");
	add_fact(out, job, "Claimant", "claimant");
	add_fact(out, job, "Lease until", "lease_until");
	if (cell(job, 0, "progress") || (cell(job, 0, "message") && !options.hide_args))
	{
		add_raw(out, "<div><dt>Progress</dt><dd>");
		add_report(out, job, 0);
		add_raw(out, "</dd></div>");
	}
	if (!options.hide_args)
		add_fact(out, job, "Cursor", "cursor");
	add_fact(out, job, "Schedule", "schedule");
	add_fact(out, job, "Expires", "expires_at");
	add_fact(out, job, "Version", "version");
	add_fact(out, job, "Dedup key", "dedup_key");
	add_tags(page, cell(job, 0, "id"));
	if (number(job, 0, "merged") > 0)
		add_fact(out, job, "Duplicates merged", "merged");
	add_fact(out, job, "Data consistency", "data_consistency");
	add_fact(out, job, "Read from", "read_from");
	add_fact(out, job, "WAL position", "wal_lsn");
	add_raw(out, "</dl>\n");
}

static void
add_event(Buffer *out, const char *name, const char *time, const char *class)
{
	if (time == NULL)
		return;
	add(out, "<li class=\"%r\"><b>%h</b> ", class, name);
	add_time(out, time);
	add(out, " <small>%h</small></li>", time);
}

/* In the order in which it happened. A run that failed stands among the errors, the latest first. */
static void
add_timeline(Page *page, const Answer *job, const Answer *errors)
{
	Buffer	   *out = &page->out;
	const char *finished = cell(job, 0, "finished_at");

	add_raw(out, "<section id=\"timeline\" data-live><h2>Timeline</h2><ol class=\"timeline\">");
	add_event(out, "created", cell(job, 0, "created_at"), "");
	for (int i = rows(errors) - 1; i >= 0; i--)
	{
		add_event(out, "started", cell(errors, i, "started_at"), "");
		add_event(out, "failed", cell(errors, i, "failed_at"), "failed");
	}
	if (finished == NULL)
		add_event(out, "due", cell(job, 0, "run_at"), "");
	if (rows(errors) == 0 || cell(job, 0, "executor_pid") || (finished && strcmp(cell(job, 0, "state"), "completed") == 0))
		add_event(out, "started", cell(job, 0, "started_at"), "");
	add_event(out, cell(job, 0, "state"), finished, cell(job, 0, "state"));
	add_raw(out, "</ol></section>\n");
}

static void
add_errors(Page *page, const Answer *errors)
{
	Buffer	   *out = &page->out;

	if (is_problem(page, errors, "column errors") || rows(errors) == 0)
		return;
	add_raw(out, "<section id=\"errors\" data-live><h2>Errors</h2>");
	for (int i = 0; i < rows(errors); i++)
	{
		add(out, "<article class=\"failure\"><h3>Attempt %h <span class=\"tag\">%h</span> ", cell(errors, i, "attempt"), cell(errors, i, "sqlstate"));
		add_time(out, cell(errors, i, "failed_at"));
		add(out, "</h3><p>%h</p>", cell(errors, i, "message"));
		if (cell(errors, i, "detail"))
			add(out, "<pre tabindex=\"0\">%h</pre>", cell(errors, i, "detail"));
		if (cell(errors, i, "hint"))
			add(out, "<p class=\"hint\">%h</p>", cell(errors, i, "hint"));
		if (cell(errors, i, "context"))
			add(out, "<details data-key=\"context %h\"><summary>Context</summary><pre tabindex=\"0\">%h</pre></details>", cell(errors, i, "attempt"),
				cell(errors, i, "context"));
		add_raw(out, "</article>");
	}
	add_raw(out, "</section>\n");
}

static void
add_values(Page *page, const Answer *job)
{
	Buffer	   *out = &page->out;
	static const char *const values[][2] = {{"args", "Args"}, {"result", "Result"}, {"context", "Context"}};

	if (options.hide_args)
	{
		add_raw(out, "<p class=\"missing\">Args, context and result are hidden here (--hide-args).</p>\n");
		return;
	}
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		if (cell(job, 0, values[i][0]))
		{
			add(out, "<section id=\"%r\" data-live><h2>%r</h2>", values[i][0], values[i][1]);
			add_code(out, values[i][1], cell(job, 0, values[i][0]));
			if (i == 0 && number(job, 0, "args_length") > 200000)
				add_raw(out, "<p class=\"missing\">The rest is not shown.</p>");
			add_raw(out, "</section>\n");
		}
}

static void
add_neighbours(Page *page, const char *batch, const char *id)
{
	Buffer	   *out = &page->out;
	Answer	   *of = page_ask(page, batch_sql, 1, batch);
	Answer	   *steps = page_ask(page, neighbours_sql, 2, batch, id);

	add_raw(out, "<section id=\"batch\" data-live><h2>Batch</h2>");
	if (!is_problem(page, of, "view batch") && rows(of) > 0)
		add(out, "<p><a href=\"%r/batches/%u\">%h %h</a> is %h: %h of %h jobs remain.</p>", options.prefix, batch, batch,
			cell(of, 0, "name"), cell(of, 0, "state"), cell(of, 0, "remaining"), cell(of, 0, "jobs"));
	if (of->result && !is_problem(page, steps, "view workflow_step") && rows(steps) > 0)
	{
		add_raw(out, "<table><thead><tr><th scope=\"col\">Step</th><th scope=\"col\"></th><th scope=\"col\">Job</th><th scope=\"col\">State</th></tr></thead><tbody>");
		for (int i = 0; i < rows(steps); i++)
		{
			add(out, "<tr><th scope=\"row\">%h</th><td>%h</td><td>", cell(steps, i, "step"), cell(steps, i, "place"));
			add_job_link(out, cell(steps, i, "job"));
			add_raw(out, "</td><td>");
			add_state(out, cell(steps, i, "state"));
			add_raw(out, "</td></tr>");
		}
		add_raw(out, "</tbody></table>");
	}
	add_raw(out, "</section>\n");
}

void
page_job(Page *page)
{
	const char *id = page->path + strlen("/jobs/");
	Buffer		title;
	Answer	   *job = page_ask(page, job_sql, 1, id);
	Answer	   *errors;

	if (job->result && rows(job) == 0)
	{
		page_error(page, 404, "No such job", "There is no job of that id that your role may see. Finished jobs are kept for a time only.");
		return;
	}
	buffer_init(&title);
	add(&title, "Job %r", id);
	page_begin(page, title.data, "/jobs");
	buffer_free(&title);
	if (!is_problem(page, job, "view job"))
	{
		errors = page_ask(page, errors_sql, 1, id);
		add_buttons(page, job);
		add_facts(page, job);
		add_explanation(page, id);
		add_raw(&page->out, "<div class=\"columns\"><div>");
		add_values(page, job);
		add_raw(&page->out, "</div><div>");
		add_timeline(page, job, errors);
		if (cell(job, 0, "batch"))
			add_neighbours(page, cell(job, 0, "batch"), id);
		add_raw(&page->out, "</div></div>");
		add_errors(page, errors);
	}
	page_end(page);
}
