/*
 * page_batches.c
 *		Batches and workflows: how far each has got, and the graph of one.
 */
#include <string.h>

#include "page.h"
#include "workflow.h"

#define PAGE_BATCHES 100

static const char batches_sql[] =
	"SELECT id, name, owner, parent, state, jobs, remaining, completed, dead, cancelled, created_at, ended_at "
	"FROM queue_jobs.batch WHERE $1::bigint IS NULL OR id < $1::bigint ORDER BY id DESC LIMIT 101";
static const char batch_sql[] =
	"SELECT id, name, owner, parent, state, jobs, remaining, completed, dead, cancelled, created_at, ended_at, succeeded_at "
	"FROM queue_jobs.batch WHERE id = $1::bigint";
static const char children_sql[] = "SELECT id, name, state, jobs, remaining, dead, cancelled, completed FROM queue_jobs.batch WHERE parent = $1::bigint ORDER BY id LIMIT 100";
static const char steps_sql[] =
	"SELECT step, job, worker, state, array_to_string(after, ', ') AS after, if_dead FROM queue_jobs.workflow_step WHERE batch = $1::bigint "
	"ORDER BY job, step LIMIT 1001";
static const char edges_sql[] =
	"SELECT s.step, a AS after FROM queue_jobs.workflow_step s, unnest(s.after) a WHERE s.batch = $1::bigint LIMIT 5000";
static const char members_sql[] =
	"SELECT j.id, j.worker, j.state, j.attempt, j.created_at, j.finished_at, left(j.last_error, 200) AS last_error "
	"FROM queue_jobs.search_jobs(batch => $1::bigint, max_jobs => 50) j ORDER BY j.id";

/* Of its jobs: completed, then dead and cancelled. */
static void
add_progress(Buffer *out, const Answer *batches, int row)
{
	double		jobs = number(batches, row, "jobs");
	double		completed = number(batches, row, "completed");
	double		bad = number(batches, row, "dead") + number(batches, row, "cancelled");

	add(out, "<svg class=\"progress\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"%h of %h completed\">"
		"<rect class=\"all\" width=\"100\" height=\"8\"/>", cell(batches, row, "completed"), cell(batches, row, "jobs"));
	if (jobs > 0)
		add(out, "<rect class=\"done\" width=\"%d\" height=\"8\"/><rect class=\"lost\" x=\"%d\" width=\"%d\" height=\"8\"/>",
			(int) (100 * completed / jobs), (int) (100 * completed / jobs), (int) (100 * bad / jobs + (bad > 0)));
	add_raw(out, "</svg>");
}

static void
add_row(Buffer *out, const Answer *batches, int row)
{
	const char *id = cell(batches, row, "id");

	add(out, "<tr data-key=\"%h\"><th scope=\"row\"><a href=\"%r/batches/%u\">%h</a></th><td>%h</td><td>", id, options.prefix, id, id, cell(batches, row, "name"));
	add_state(out, cell(batches, row, "state"));
	add_raw(out, "</td><td class=\"rate\">");
	add_progress(out, batches, row);
	add(out, "</td><td class=\"n\">%h</td><td class=\"n\">%h</td><td class=\"n\">%h</td><td class=\"n\">%h</td><td>", cell(batches, row, "jobs"),
		cell(batches, row, "remaining"), cell(batches, row, "dead"), cell(batches, row, "cancelled"));
	add_time(out, cell(batches, row, "created_at"));
	add_raw(out, "</td></tr>\n");
}

static void
add_table(Buffer *out, const Answer *batches)
{
	add_raw(out, "<div class=\"scroll\"><table id=\"batches\" data-live><caption class=\"hidden\">Batches, newest first</caption><thead><tr><th scope=\"col\">Batch</th>"
			"<th scope=\"col\">Name</th><th scope=\"col\">State</th><th scope=\"col\">Progress</th><th scope=\"col\" class=\"n\">Jobs</th>"
			"<th scope=\"col\" class=\"n\">Remaining</th><th scope=\"col\" class=\"n\">Dead</th><th scope=\"col\" class=\"n\">Cancelled</th>"
			"<th scope=\"col\">Created</th></tr></thead><tbody>\n");
	for (int i = 0; i < rows(batches) && i < PAGE_BATCHES; i++)
		add_row(out, batches, i);
	add_raw(out, "</tbody></table></div>\n");
}

void
page_batches(Page *page)
{
	Buffer	   *out = &page->out;
	Answer	   *batches = page_ask(page, batches_sql, 1, param_given(&page->query, "before"));

	page_begin(page, "Batches and workflows", "/batches");
	if (!is_problem(page, batches, "view batch"))
	{
		add_table(out, batches);
		if (rows(batches) == 0)
			add_raw(out, "<p class=\"empty\">No batch of yours.</p>\n");
		if (rows(batches) > PAGE_BATCHES)
			add(out, "<p class=\"pages\"><a rel=\"next\" href=\"%r/batches?before=%u\">Older »</a></p>\n", options.prefix, cell(batches, PAGE_BATCHES - 1, "id"));
	}
	page_end(page);
}

static void
add_step_row(Buffer *out, const Answer *steps, int row)
{
	add(out, "<tr data-key=\"%h\"><th scope=\"row\">%h</th><td>", cell(steps, row, "step"), cell(steps, row, "step"));
	add_job_link(out, cell(steps, row, "job"));
	add_raw(out, "</td><td>");
	add_state(out, cell(steps, row, "state"));
	add_raw(out, "</td><td>");
	add_worker_link(out, cell(steps, row, "worker"));
	add(out, "</td><td>%h</td><td>%h</td></tr>\n", cell(steps, row, "after"), cell(steps, row, "if_dead"));
}

static void
add_workflow(Page *page, const char *id, const Answer *steps)
{
	Buffer	   *out = &page->out;
	Answer	   *edges = page_ask(page, edges_sql, 1, id);

	add_raw(out, "<section id=\"workflow\" data-live><h2>Workflow</h2>");
	if (rows(steps) > MAX_DRAWN_STEPS)
		add(out, "<p class=\"missing\">More than %d steps are not drawn.</p>", MAX_DRAWN_STEPS);
	else
		add_graph(out, steps, edges);
	add_raw(out, "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">Step</th><th scope=\"col\">Job</th><th scope=\"col\">State</th><th scope=\"col\">Worker</th>"
			"<th scope=\"col\">After</th><th scope=\"col\">If one is dead</th></tr></thead><tbody>\n");
	for (int i = 0; i < rows(steps) && i < 1000; i++)
		add_step_row(out, steps, i);
	add_raw(out, "</tbody></table></div></section>\n");
}

static void
add_members(Page *page, const char *id)
{
	Buffer	   *out = &page->out;
	Answer	   *members = page_ask(page, members_sql, 1, id);

	add_raw(out, "<section id=\"members\" data-live><h2>Jobs</h2>");
	if (!is_problem(page, members, "function search_jobs()"))
	{
		add_raw(out, "<div class=\"scroll\"><table><thead><tr><th scope=\"col\" class=\"n\">Job</th><th scope=\"col\">State</th><th scope=\"col\">Worker</th>"
				"<th scope=\"col\">Error</th></tr></thead><tbody>");
		for (int i = 0; i < rows(members); i++)
		{
			add_raw(out, "<tr><th scope=\"row\" class=\"n\">");
			add_job_link(out, cell(members, i, "id"));
			add_raw(out, "</th><td>");
			add_state(out, cell(members, i, "state"));
			add_raw(out, "</td><td>");
			add_worker_link(out, cell(members, i, "worker"));
			add(out, "</td><td class=\"note error\">%h</td></tr>", cell(members, i, "last_error"));
		}
		add(out, "</tbody></table></div><p><a href=\"%r/jobs?batch=%u\">All its jobs</a></p>", options.prefix, id);
	}
	add_raw(out, "</section>\n");
}

static void
add_summary(Page *page, const Answer *batch)
{
	static const char *const counts[] = {"jobs", "completed", "remaining", "dead", "cancelled"};
	Buffer	   *out = &page->out;

	add_raw(out, "<section id=\"summary\" data-live>");
	add_progress(out, batch, 0);
	add_raw(out, "<dl class=\"facts\"><div><dt>State</dt><dd>");
	add_state(out, cell(batch, 0, "state"));
	add_raw(out, "</dd></div>");
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		add(out, "<div><dt>%r</dt><dd>%h</dd></div>", counts[i], cell(batch, 0, counts[i]));
	add(out, "<div><dt>owner</dt><dd>%h</dd></div>", cell(batch, 0, "owner"));
	if (cell(batch, 0, "parent"))
		add(out, "<div><dt>parent</dt><dd><a href=\"%r/batches/%u\">%h</a></dd></div>", options.prefix, cell(batch, 0, "parent"), cell(batch, 0, "parent"));
	add_raw(out, "<div><dt>created</dt><dd>");
	add_time(out, cell(batch, 0, "created_at"));
	add_raw(out, "</dd></div>");
	if (cell(batch, 0, "ended_at"))
	{
		add_raw(out, "<div><dt>ended</dt><dd>");
		add_time(out, cell(batch, 0, "ended_at"));
		add_raw(out, "</dd></div>");
	}
	add_raw(out, "</dl></section>\n");
}

static void
add_batch(Page *page, const Answer *batch, const char *id)
{
	Buffer	   *out = &page->out;
	Answer	   *steps = page_ask(page, steps_sql, 1, id);
	Answer	   *children = page_ask(page, children_sql, 1, id);

	add_raw(out, "<div class=\"bar\" id=\"actions\" data-live>");
	if (number(batch, 0, "dead") + number(batch, 0, "cancelled") > 0)
		add_button(page, "retry_batch", "batch", id, "Retry what is dead or cancelled", "main");
	if (number(batch, 0, "remaining") > 0)
		add_button(page, "cancel_batch", "batch", id, "Cancel…", "");
	add_raw(out, "</div>\n");
	add_summary(page, batch);
	if (rows(steps) > 0)
		add_workflow(page, id, steps);
	else
		add_members(page, id);
	if (rows(children) > 0)
	{
		add_raw(out, "<h2>Batches in it</h2>");
		add_table(out, children);
	}
}

void
page_batch(Page *page)
{
	const char *id = page->path + strlen("/batches/");
	Answer	   *batch = page_ask(page, batch_sql, 1, id);
	Buffer		title;

	if (batch->result && rows(batch) == 0)
	{
		page_error(page, 404, "No such batch", "There is no batch of that id that your role may see.");
		return;
	}
	buffer_init(&title);
	add(&title, "Batch %r %r", id, batch->result ? cell(batch, 0, "name") : NULL);
	page_begin(page, title.data, "/batches");
	buffer_free(&title);
	if (!is_problem(page, batch, "view batch"))
		add_batch(page, batch, id);
	page_end(page);
}
