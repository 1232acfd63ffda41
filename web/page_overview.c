/*
 * page_overview.c
 *		Overview: is all well, what waits and runs in each queue, how fast; and the same queues
 *		with what can be done to them.
 */
#include <stdio.h>
#include <string.h>

#include "history.h"
#include "page.h"

static const char queues_sql[] = "SELECT * FROM queue_jobs.queue ORDER BY queue LIMIT 1000";
static const char health_sql[] = "SELECT name, ok, value, advice FROM queue_jobs.health() ORDER BY ok, name";
static const char executors_sql[] =
	"SELECT (SELECT count(*) FROM queue_jobs.running_jobs()) AS busy, current_setting('queue_jobs.max_executors', true) AS most";

static void
add_health(Page *page)
{
	Buffer	   *out = &page->out;
	Answer	   *health = page_ask(page, health_sql, 0);
	int			bad = 0;

	add_raw(out, "<section id=\"health\" data-live aria-label=\"Health\">");
	if (!is_problem(page, health, "function health()"))
	{
		while (bad < rows(health) && !is_true(health, bad, "ok"))
			bad++;
		for (int i = 0; i < bad; i++)
			add(out, "<p class=\"problem\" role=\"alert\"><strong>%h</strong>: %h. %h</p>", cell(health, i, "name"),
				cell(health, i, "value"), cell(health, i, "advice"));
		add(out, "<details data-key=\"health\"><summary class=\"%r\">%d of %d checks pass</summary><dl class=\"facts\">",
			bad ? "bad" : "good", rows(health) - bad, rows(health));
		for (int i = bad; i < rows(health); i++)
			add(out, "<div><dt>%h</dt><dd>%h</dd></div>", cell(health, i, "name"), cell(health, i, "value"));
		add_raw(out, "</dl></details>");
	}
	add_raw(out, "</section>\n");
}

static void
add_tile(Buffer *out, const char *name, double count, const char *query)
{
	add(out, "<li><a href=\"%r/jobs?%r\"><b>", options.prefix, query);
	add_count(out, count);
	add(out, "</b> %r</a></li>", name);
}

static double
sum(const Answer *queues, const char *column)
{
	double		total = 0;

	for (int i = 0; i < rows(queues); i++)
		total += number(queues, i, column);
	return total;
}

static void
add_tiles(Page *page, const Answer *queues)
{
	Buffer	   *out = &page->out;
	Answer	   *executors = page_ask(page, executors_sql, 0);

	add_raw(out, "<ul class=\"tiles\" id=\"tiles\" data-live>");
	add_tile(out, "available", sum(queues, "available"), "state=available");
	add_tile(out, "executing", sum(queues, "executing"), "state=executing");
	add_tile(out, "retryable", sum(queues, "retryable"), "state=retryable");
	add_tile(out, "scheduled", sum(queues, "scheduled"), "state=scheduled");
	if (rows(queues) > 0 && PQfnumber(queues->result, "waiting") >= 0)
		add_tile(out, "waiting", sum(queues, "waiting"), "state=waiting");
	if (rows(executors) > 0)
	{
		add(out, "<li><a href=\"%r/executors\"><b>%h", options.prefix, cell(executors, 0, "busy"));
		if (cell(executors, 0, "most"))
			add(out, "<small> of %h</small>", cell(executors, 0, "most"));
		add_raw(out, "</b> executors busy</a></li>");
	}
	add_raw(out, "</ul>\n");
}

/* One line; what it shows is said in words, too. */
static void
add_sparkline(Buffer *out, const double *values, int count, const char *class, const char *what)
{
	double		most = 0;
	char		text[64];

	for (int i = 0; i < count; i++)
		most = values[i] > most ? values[i] : most;
	snprintf(text, sizeof(text), "%.1f", most);
	add(out, "<svg class=\"spark %r\" viewBox=\"0 0 120 20\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"%r a second in the last "
		"ten minutes, %r at most\"><title>%r a second, %r at most</title><polyline points=\"", class, what, text, what, text);
	for (int i = 0; i < count; i++)
	{
		snprintf(text, sizeof(text), "%d,%.1f ", HISTORY_SAMPLES - count + i, 19 - (most > 0 ? 18 * values[i] / most : 0));
		add_raw(out, text);
	}
	add_raw(out, "\"/></svg>");
}

static void
add_rates(Buffer *out, const char *queue, bool known)
{
	History		history;
	char		text[32];

	if (!known || !history_of(queue, &history))
	{
		add_raw(out, "<td class=\"rate\"></td><td class=\"rate\"></td>");
		return;
	}
	snprintf(text, sizeof(text), "%.1f", history.runs[history.count - 1]);
	add(out, "<td class=\"rate\"><span class=\"n\">%r</span>", text);
	add_sparkline(out, history.runs, history.count, "runs", "runs");
	snprintf(text, sizeof(text), "%.1f", history.failures[history.count - 1]);
	add(out, "</td><td class=\"rate\"><span class=\"n\">%r</span>", text);
	add_sparkline(out, history.failures, history.count, "failures", "failures");
	add_raw(out, "</td>");
}

static void
add_state_count(Buffer *out, const Answer *queues, int row, const char *state)
{
	double		count = number(queues, row, state);

	add_raw(out, "<td class=\"n\">");
	if (count > 0)
	{
		add(out, "<a href=\"%r/jobs?queue=%u&amp;state=%r\">", options.prefix, cell(queues, row, "queue"), state);
		add_count(out, count);
		add_raw(out, "</a>");
	}
	else
		add_raw(out, "<span class=\"none\">0</span>");
	add_raw(out, "</td>");
}

static void
add_queue_row(Page *page, const Answer *queues, int row, bool known, bool has_waiting)
{
	Buffer	   *out = &page->out;
	const char *queue = cell(queues, row, "queue");

	add(out, "<tr data-key=\"%h\"><th scope=\"row\">", queue);
	add_queue_link(out, queue);
	if (is_true(queues, row, "paused"))
		add_raw(out, " <span class=\"tag warn\">paused</span>");
	add_raw(out, "</th>");
	add_state_count(out, queues, row, "available");
	add_state_count(out, queues, row, "executing");
	add_state_count(out, queues, row, "retryable");
	add_state_count(out, queues, row, "scheduled");
	if (has_waiting)
		add_state_count(out, queues, row, "waiting");
	add_raw(out, "<td class=\"n\">");
	add_time(out, cell(queues, row, "oldest_available"));
	add_raw(out, "</td>");
	add_rates(out, queue, known);
	add_raw(out, "</tr>\n");
}

void
page_overview(Page *page)
{
	Buffer	   *out = &page->out;
	Answer	   *queues = page_ask(page, queues_sql, 0);
	bool		known = page_keep(page, history_ask(page->viewer))->result != NULL;
	bool		has_waiting = queues->result && PQfnumber(queues->result, "waiting") >= 0;

	page_begin(page, "Overview", "/");
	add_health(page);
	if (!is_problem(page, queues, "view queue"))
	{
		add_tiles(page, queues);
		add(out, "<div class=\"scroll\"><table id=\"queues\" data-live><caption class=\"hidden\">Queues</caption><thead><tr><th scope=\"col\">Queue</th>"
			"<th scope=\"col\" class=\"n\">Available</th><th scope=\"col\" class=\"n\">Executing</th><th scope=\"col\" class=\"n\">Retryable</th>"
			"<th scope=\"col\" class=\"n\">Scheduled</th>%r<th scope=\"col\" class=\"n\">Oldest</th><th scope=\"col\">Runs/s</th>"
			"<th scope=\"col\">Failures/s</th></tr></thead><tbody>\n", has_waiting ? "<th scope=\"col\" class=\"n\">Waiting</th>" : "");
		for (int i = 0; i < rows(queues); i++)
			add_queue_row(page, queues, i, known, has_waiting);
		add_raw(out, "</tbody></table></div>\n");
	}
	page_end(page);
}
