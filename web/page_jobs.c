/*
 * page_jobs.c
 *		Jobs: search, and what is done to those that are marked or to all that match.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "filter.h"
#include "page.h"

#define PAGE_JOBS 100

/* One more than is shown says whether there are more. Args are cut: a hundred of 5 MB would be too many. */
static const char jobs_sql[] =
	"SELECT j.id, j.worker, j.queue, j.state, left(j.args::text, 200) AS args, j.attempt, j.max_attempts, j.run_at, j.created_at, j.started_at, "
	"j.finished_at, left(j.last_error, 300) AS last_error, left(j.waits_for, 300) AS waits_for, j.owner, "
	"r.r ->> 'progress' AS progress, left(r.r ->> 'message', 200) AS message "
	"FROM queue_jobs.search_jobs(" FILTER_ARGUMENTS ", before => $10::bigint, max_jobs => 101) j "
	/* columns of later versions, of jobs that run */
	"LEFT JOIN LATERAL (SELECT to_jsonb(j) - '{args,context,result,errors}'::text[] AS r WHERE j.state = 'executing' OFFSET 0) r ON true ORDER BY j.id DESC";

static void
add_field(Buffer *out, const char *name, const char *label, const char *value, const char *attributes)
{
	add(out, "<label>%r <input name=\"%r\" value=\"%h\" %r></label>", label, name, value, attributes);
}

static void
add_search(Page *page, const Filter *filter)
{
	Buffer	   *out = &page->out;

	add(out, "<form class=\"search\" method=\"get\" action=\"%r/jobs\" role=\"search\"><fieldset class=\"states\"><legend class=\"hidden\">State</legend>", options.prefix);
	for (int i = 0; filter_states[i]; i++)
		add(out, "<label class=\"state %r\"><input type=\"checkbox\" name=\"state\" value=\"%r\"%r> %r</label>", filter_states[i], filter_states[i],
			filter_has_state(filter, filter_states[i]) ? " checked" : "", filter_states[i]);
	add_raw(out, "</fieldset><div class=\"fields\">");
	add_field(out, "worker", "Worker", filter->values[0], "maxlength=\"200\"");
	add_field(out, "queue", "Queue", filter->values[1], "maxlength=\"200\"");
	if (!options.hide_args)
		add_field(out, "args", "Args contain", filter->values[3], "placeholder=\"{&quot;id&quot;: 1}\" spellcheck=\"false\"");
	add_field(out, "error", "Error contains", filter->values[4], "");
	add_field(out, "batch", "Batch", filter->values[5], "inputmode=\"numeric\" pattern=\"[0-9]*\" size=\"8\"");
	add_field(out, "tags", "Tags", filter->values[8], "placeholder=\"red, green\" size=\"12\"");
	add_field(out, "since", "Created since", filter->values[6], "placeholder=\"2 hours\" size=\"12\"");
	add_field(out, "until", "until", filter->values[7], "placeholder=\"5 min\" size=\"12\"");
	add(out, "<button class=\"main\">Search</button> <a href=\"%r/jobs\">All</a></div></form>\n", options.prefix);
}

static const char *
when(const Answer *jobs, int row)
{
	static const char *const columns[] = {"finished_at", "started_at", "run_at"};
	const char *state = cell(jobs, row, "state");
	int			first = strcmp(state, "executing") == 0 ? 1 : cell(jobs, row, "finished_at") ? 0 : 2;

	return cell(jobs, row, columns[first]);
}

static void
add_row(Page *page, const Answer *jobs, int row)
{
	Buffer	   *out = &page->out;
	const char *id = cell(jobs, row, "id");
	const char *error = cell(jobs, row, "last_error");
	const char *waits_for = cell(jobs, row, "waits_for");

	add(out, "<tr data-key=\"%h\">", id);
	if (!options.read_only)
		add(out, "<td><input type=\"checkbox\" name=\"id\" value=\"%h\" form=\"marked\" aria-label=\"Mark job %h\"></td>", id, id);
	add_raw(out, "<th scope=\"row\" class=\"n\">");
	add_job_link(out, id);
	add_raw(out, "</th><td>");
	add_state(out, cell(jobs, row, "state"));
	add_raw(out, "</td><td>");
	add_worker_link(out, cell(jobs, row, "worker"));
	if (strcmp(cell(jobs, row, "worker"), cell(jobs, row, "queue")) != 0)
		add(out, "<small class=\"sub\">in %h</small>", cell(jobs, row, "queue"));
	if (!options.hide_args)
		add(out, "</td><td class=\"args\"><code>%h</code>", cell(jobs, row, "args"));
	add_raw(out, "</td><td class=\"n\">");
	add_time(out, when(jobs, row));
	add(out, "</td><td class=\"n\">%h<small>/%h</small></td><td class=\"note%r\">", cell(jobs, row, "attempt"),
		cell(jobs, row, "max_attempts"), waits_for || is_text(cell(jobs, row, "state"), "executing") ? "" : " error");
	if (cell(jobs, row, "progress") || cell(jobs, row, "message"))
		add_report(out, jobs, row);
	else
		add(out, "%h", waits_for ? waits_for : error);
	add_raw(out, "</td></tr>\n");
}

/*
 * The marks' form stands beside the table, which has its checkboxes: what the script replaces is
 * not the form.
 */
static void
add_actions(Page *page, const Filter *filter)
{
	Buffer	   *out = &page->out;

	if (options.read_only)
		return;
	add_raw(out, "<div class=\"bar\">");
	add(out, "<form method=\"post\" id=\"marked\" class=\"bulk\" action=\"%r/action/retry_marked\"><span id=\"count\">Marked:</span>", options.prefix);
	form_hidden(page, "token", page->token);
	form_hidden(page, "back", page->target);
	add(out, "<button>Retry…</button><button formaction=\"%r/action/cancel_marked\">Cancel…</button>"
		"<button formaction=\"%r/action/discard_marked\">Discard…</button></form>", options.prefix, options.prefix);
	form_begin(page, "retry_matching", "bulk");
	filter_hidden(page, filter);
	add(out, "<span>All that match:</span><button>Retry…</button><button formaction=\"%r/action/cancel_matching\">Cancel…</button>"
		"<button formaction=\"%r/action/discard_matching\">Discard…</button>", options.prefix, options.prefix);
	form_end(page);
	add_raw(out, "</div>\n");
}

static void
add_table(Page *page, const Answer *jobs)
{
	Buffer	   *out = &page->out;
	int			count = rows(jobs) > PAGE_JOBS ? PAGE_JOBS : rows(jobs);

	add(out, "<div class=\"scroll\"><table id=\"jobs\" data-live data-rows><caption class=\"hidden\">Jobs, newest first</caption><thead><tr>%r"
		"<th scope=\"col\" class=\"n\">Job</th><th scope=\"col\">State</th><th scope=\"col\">Worker</th>%r<th scope=\"col\" class=\"n\">When</th>"
		"<th scope=\"col\" class=\"n\">Attempt</th><th scope=\"col\">Waits for, progress, or error</th></tr></thead><tbody>\n",
		options.read_only ? "" : "<th scope=\"col\"><span class=\"hidden\">Mark</span></th>", options.hide_args ? "" : "<th scope=\"col\">Args</th>");
	for (int i = 0; i < count; i++)
		add_row(page, jobs, i);
	add_raw(out, "</tbody></table></div>\n");
	if (count == 0)
		add_raw(out, "<p class=\"empty\">No job of yours matches.</p>\n");
}

static void
add_pages(Page *page, const Answer *jobs, const Filter *filter)
{
	Buffer	   *out = &page->out;

	add_raw(out, "<p class=\"pages\">");
	if (param_given(&page->query, "before"))
	{
		add(out, "<a href=\"%r/jobs?", options.prefix);
		filter_query(out, filter);
		add_raw(out, "\">« Newest</a> ");
	}
	if (rows(jobs) > PAGE_JOBS)
	{
		add(out, "<a rel=\"next\" href=\"%r/jobs?before=%u", options.prefix, cell(jobs, PAGE_JOBS - 1, "id"));
		filter_query(out, filter);
		add_raw(out, "\">Older »</a>");
	}
	add_raw(out, "</p>\n");
}

void
page_jobs(Page *page)
{
	Filter		filter;
	Answer	   *jobs;

	filter_read(&filter, &page->query);
	jobs = page_ask(page, jobs_sql, 10, filter.values[0], filter.values[1], filter.values[2], filter.values[3], filter.values[4],
					filter.values[5], filter.values[6], filter.values[7], filter.values[8], param_given(&page->query, "before"));
	page_begin(page, "Jobs", "/jobs");
	add_search(page, &filter);
	if (jobs->result == NULL && strncmp(jobs->sqlstate, "22", 2) == 0)
		add(&page->out, "<p class=\"problem\" role=\"alert\">The search is not understood: %h%r%h</p>\n", jobs->message,
			jobs->detail ? ". " : "", jobs->detail);
	else if (!is_problem(page, jobs, "function search_jobs()"))
	{
		add_actions(page, &filter);
		add_table(page, jobs);
		add_pages(page, jobs, &filter);
	}
	page_end(page);
}
