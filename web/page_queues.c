/*
 * page_queues.c
 *		Queues: pause, resume, and move what waits in one to another.
 */
#include <string.h>

#include "page.h"

static const char queues_sql[] = "SELECT * FROM queue_jobs.queue ORDER BY queue LIMIT 1000";
static const char routing_sql[] = "SELECT position, selector, queue FROM queue_jobs.routing_rule ORDER BY position";

static const char limits_sql[] =
	"SELECT name, max_running, rate, period, running, used, closed_until, closed_until IS NOT NULL AS closed FROM queue_jobs.named_limit ORDER BY name LIMIT 1000";

static const char *const states[] = {"available", "executing", "retryable", "scheduled", "waiting"};

/* Older versions have no jobs that wait for others. */
static int
state_count(const Answer *queues)
{
	return PQfnumber(queues->result, "waiting") >= 0 ? 5 : 4;
}

static void
add_actions(Page *page, const char *queue, bool paused)
{
	if (options.read_only)
		return;
	add_button(page, paused ? "resume" : "pause", "queue", queue, paused ? "Resume" : "Pause", "");
	form_begin(page, "migrate", "button move");
	form_hidden(page, "from", queue);
	add(&page->out, "<input name=\"to\" list=\"names\" required maxlength=\"200\" placeholder=\"other queue\" aria-label=\"Move the jobs of %h to\">"
		"<button>Move…</button>", queue);
	form_end(page);
}

static void
add_row(Page *page, const Answer *queues, int row)
{
	Buffer	   *out = &page->out;
	const char *queue = cell(queues, row, "queue");
	bool		paused = is_true(queues, row, "paused");

	add(out, "<tr data-key=\"%h\"><th scope=\"row\">", queue);
	add_queue_link(out, queue);
	add(out, "</th><td>%r</td>", paused ? "<span class=\"tag warn\">paused</span>" : "running");
	for (int i = 0; i < state_count(queues); i++)
	{
		add_raw(out, "<td class=\"n\">");
		add_count(out, number(queues, row, states[i]));
		add_raw(out, "</td>");
	}
	add_raw(out, "<td class=\"n\">");
	add_time(out, cell(queues, row, "oldest_available"));
	add_raw(out, "</td><td class=\"actions\">");
	add_actions(page, queue, paused);
	add_raw(out, "</td></tr>\n");
}

static void
add_routing(Page *page)
{
	Buffer	   *out = &page->out;
	Answer	   *rules = page_ask(page, routing_sql, 0);

	if (rows(rules) == 0)
		return;
	add_raw(out, "<h2>Routing</h2><ol class=\"rules\">");
	for (int i = 0; i < rows(rules); i++)
		add(out, "<li><code>%h</code> → %h</li>", cell(rules, i, "selector"), cell(rules, i, "queue") ? cell(rules, i, "queue") : "the worker's own queue");
	add_raw(out, "</ol>\n");
}

/* A number of a limit, in place: it can be changed. */
static void
add_limit_number(Page *page, const char *action, const char *limit, const char *taken, const char *most)
{
	Buffer	   *out = &page->out;

	if (most == NULL)
		return;
	add(out, "%h of ", taken ? taken : "?");
	if (options.read_only)
	{
		add(out, "%h", most);
		return;
	}
	form_begin(page, action, "button");
	form_hidden(page, "limit", limit);
	add(out, "<input name=\"number\" type=\"number\" min=\"1\" required value=\"%h\" aria-label=\"%h\"><button>Change</button>", most, limit);
	form_end(page);
}

static void
add_limit_actions(Page *page, const char *limit, bool closed)
{
	if (options.read_only)
		return;
	if (closed)
		add_button(page, "open_limit", "limit", limit, "Open", "");
	form_begin(page, "close_limit", "button");
	form_hidden(page, "limit", limit);
	add(&page->out, "<input name=\"duration\" required maxlength=\"50\" value=\"1 min\" aria-label=\"Close %h for\"><button>Close</button>", limit);
	form_end(page);
}

static void
add_limits(Page *page)
{
	Buffer	   *out = &page->out;
	Answer	   *limits = page_ask(page, limits_sql, 0);

	if (rows(limits) == 0)
		return;
	add_raw(out, "<h2>Limits that workers share</h2><div class=\"scroll\"><table id=\"limits\" data-live><thead><tr><th scope=\"col\">Limit</th>"
			"<th scope=\"col\">State</th><th scope=\"col\">Running</th><th scope=\"col\">Used</th><th scope=\"col\">Period</th>"
			"<th scope=\"col\"><span class=\"hidden\">Actions</span></th></tr></thead><tbody>\n");
	for (int i = 0; i < rows(limits); i++)
	{
		const char *limit = cell(limits, i, "name");
		bool		closed = is_true(limits, i, "closed");

		add(out, "<tr data-key=\"%h\"><th scope=\"row\">%h</th><td>%r", limit, limit, closed ? "<span class=\"tag warn\">closed</span> until " : "open");
		if (closed)
			add_time(out, cell(limits, i, "closed_until"));
		add_raw(out, "</td><td>");
		add_limit_number(page, "change_limit", limit, cell(limits, i, "running"), cell(limits, i, "max_running"));
		add_raw(out, "</td><td>");
		add_limit_number(page, "change_rate", limit, cell(limits, i, "used"), cell(limits, i, "rate"));
		add(out, "</td><td>%h</td><td class=\"actions\">", cell(limits, i, "period") ? cell(limits, i, "period") : "");
		add_limit_actions(page, limit, closed);
		add_raw(out, "</td></tr>\n");
	}
	add_raw(out, "</tbody></table></div>\n");
}

void
page_queues(Page *page)
{
	Buffer	   *out = &page->out;
	Answer	   *queues = page_ask(page, queues_sql, 0);

	page_begin(page, "Queues", "/queues");
	if (!is_problem(page, queues, "view queue"))
	{
		add(out, "<div class=\"scroll\"><table id=\"queues\" data-live><caption class=\"hidden\">Queues</caption><thead><tr><th scope=\"col\">Queue</th>"
			"<th scope=\"col\">State</th><th scope=\"col\" class=\"n\">Available</th><th scope=\"col\" class=\"n\">Executing</th>"
			"<th scope=\"col\" class=\"n\">Retryable</th><th scope=\"col\" class=\"n\">Scheduled</th>%r<th scope=\"col\" class=\"n\">Oldest</th>"
			"<th scope=\"col\"><span class=\"hidden\">Actions</span></th></tr></thead><tbody>\n",
			state_count(queues) == 5 ? "<th scope=\"col\" class=\"n\">Waiting</th>" : "");
		for (int i = 0; i < rows(queues); i++)
			add_row(page, queues, i);
		add_raw(out, "</tbody></table></div>\n<datalist id=\"names\">");
		for (int i = 0; i < rows(queues); i++)
			add(out, "<option value=\"%h\">", cell(queues, i, "queue"));
		add_raw(out, "</datalist>\n");
	}
	add_limits(page);
	add_routing(page);
	page_end(page);
}
