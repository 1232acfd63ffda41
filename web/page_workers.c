/*
 * page_workers.c
 *		Workers: what their runs take against their urgency's target, advice; and one with all
 *		its attributes.
 */
#include <stdlib.h>
#include <string.h>

#include "page.h"

static const char workers_sql[] =
	"SELECT w.name, w.handler, w.queue, w.urgency, w.enabled, w.broken_until, w.feature_category, s.runs, s.failures, s.run_time_p50, s.run_time_p99, "
	"s.queueing_time_p50, s.queueing_time_p99, s.started_in_target, s.ran_in_target, s.cpu_share "
	"FROM queue_jobs.worker w LEFT JOIN queue_jobs.worker_statistics s ON s.worker = w.name ORDER BY w.name LIMIT 2000";
static const char worker_sql[] = "SELECT * FROM queue_jobs.worker WHERE name = $1";
static const char statistics_sql[] = "SELECT * FROM queue_jobs.worker_statistics WHERE worker = $1";
static const char advice_sql[] = "SELECT worker, finding, advice FROM queue_jobs.check_workers() ORDER BY 1, 2";

static int
findings(const Answer *advice, const char *worker)
{
	int			count = 0;

	for (int i = 0; i < rows(advice); i++)
		if (strcmp(cell(advice, i, "worker"), worker) == 0)
			count++;
	return count;
}

static void
add_duration_cell(Buffer *out, const char *seconds)
{
	add_raw(out, "<td class=\"n\">");
	if (seconds)
		add_seconds(out, parse_number(seconds));
	add_raw(out, "</td>");
}

/* Of runs; below 99 in 100 is marked. */
static void
add_target_cell(Buffer *out, const char *share)
{
	add(out, "<td class=\"n%r\">", share && parse_number(share) < 0.99 ? " bad" : "");
	add_share(out, share);
	add_raw(out, "</td>");
}

static void
add_switch(Page *page, const char *worker, bool enabled)
{
	add_button(page, enabled ? "disable" : "enable", "worker", worker, enabled ? "Disable…" : "Enable", "");
}

/* A worker of which too many jobs have failed in a row. */
static void
add_broken(Page *page, const Answer *workers, int row)
{
	const char *until = cell(workers, row, "broken_until");

	if (until != NULL)
		add(&page->out, " <span class=\"tag warn\">broken until %h</span>", until);
}

static void
add_close(Page *page, const char *name, const Answer *workers, int row)
{
	if (cell(workers, row, "broken_until") != NULL)
		add_button(page, "close_breaker", "worker", name, "Close the breaker", "");
}

static void
add_row(Page *page, const Answer *workers, int row, int advice)
{
	Buffer	   *out = &page->out;
	const char *name = cell(workers, row, "name");

	add(out, "<tr data-key=\"%h\"><th scope=\"row\">", name);
	add_worker_link(out, name);
	if (!is_true(workers, row, "enabled"))
		add_raw(out, " <span class=\"tag warn\">disabled</span>");
	add_broken(page, workers, row);
	add(out, "<small class=\"sub\">%h</small></th><td>%h</td><td class=\"n\">", cell(workers, row, "handler") ? cell(workers, row, "handler") : "claimed by applications",
		cell(workers, row, "urgency"));
	add_count(out, number(workers, row, "runs"));
	add_raw(out, "</td><td class=\"n\">");
	add_count(out, number(workers, row, "failures"));
	add_raw(out, "</td>");
	add_duration_cell(out, cell(workers, row, "run_time_p50"));
	add_duration_cell(out, cell(workers, row, "run_time_p99"));
	add_duration_cell(out, cell(workers, row, "queueing_time_p50"));
	add_duration_cell(out, cell(workers, row, "queueing_time_p99"));
	add_target_cell(out, cell(workers, row, "started_in_target"));
	add_target_cell(out, cell(workers, row, "ran_in_target"));
	add_raw(out, "<td class=\"n\">");
	if (advice > 0)
		add(out, "<a href=\"%r/worker?name=%u#advice\">%d</a>", options.prefix, name, advice);
	add_raw(out, "</td><td class=\"actions\">");
	add_switch(page, name, is_true(workers, row, "enabled"));
	add_close(page, name, workers, row);
	add_raw(out, "</td></tr>\n");
}

void
page_workers(Page *page)
{
	Buffer	   *out = &page->out;
	Answer	   *workers = page_ask(page, workers_sql, 0);
	Answer	   *advice = page_ask(page, advice_sql, 0);

	page_begin(page, "Workers", "/workers");
	if (!is_problem(page, workers, "views worker and worker_statistics"))
	{
		add_raw(out, "<div class=\"scroll\"><table id=\"workers\" data-live><caption class=\"hidden\">Workers</caption><thead><tr><th scope=\"col\">Worker</th>"
				"<th scope=\"col\">Urgency</th><th scope=\"col\" class=\"n\">Runs</th><th scope=\"col\" class=\"n\">Failures</th>"
				"<th scope=\"col\" class=\"n\">Run p50</th><th scope=\"col\" class=\"n\">p99</th>"
				"<th scope=\"col\" class=\"n\">Queued p50</th><th scope=\"col\" class=\"n\">p99</th>"
				"<th scope=\"col\" class=\"n\">Started in target</th><th scope=\"col\" class=\"n\">Ran in target</th><th scope=\"col\" class=\"n\">Advice</th>"
				"<th scope=\"col\"><span class=\"hidden\">Actions</span></th></tr></thead><tbody>\n");
		for (int i = 0; i < rows(workers); i++)
			add_row(page, workers, i, findings(advice, cell(workers, i, "name")));
		add_raw(out, "</tbody></table></div>\n<p class=\"hint\">Targets: high starts within 10 s and ends within 10 s, low 1 min and 5 min, throttled "
				"has no promise of its start and ends within 5 min.</p>\n");
	}
	page_end(page);
}

/* Every column that has a value. */
static void
add_all(Buffer *out, const Answer *answer)
{
	add_raw(out, "<dl class=\"facts\">");
	for (int i = 0; i < PQnfields(answer->result); i++)
		if (!PQgetisnull(answer->result, 0, i) && *PQgetvalue(answer->result, 0, i))
			add(out, "<div><dt>%h</dt><dd>%h</dd></div>", PQfname(answer->result, i), PQgetvalue(answer->result, 0, i));
	add_raw(out, "</dl>\n");
}

static void
add_statistics(Page *page, const Answer *statistics)
{
	Buffer	   *out = &page->out;
	static const char *const times[][2] = {
		{"Run time, mean", "run_time_mean"}, {"half within", "run_time_p50"}, {"99 % within", "run_time_p99"},
		{"Queued, mean", "queueing_time_mean"}, {"half within", "queueing_time_p50"}, {"99 % within", "queueing_time_p99"}
	};

	add_raw(out, "<section id=\"statistics\" data-live><h2>Runs</h2><dl class=\"facts\">");
	add(out, "<div><dt>Runs</dt><dd>%h</dd></div><div><dt>Failures</dt><dd>%h</dd></div>", cell(statistics, 0, "runs"), cell(statistics, 0, "failures"));
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		if (cell(statistics, 0, times[i][1]))
		{
			add(out, "<div><dt>%r</dt><dd>", times[i][0]);
			add_seconds(out, number(statistics, 0, times[i][1]));
			add_raw(out, "</dd></div>");
		}
	add_raw(out, "<div><dt>Started in target</dt><dd>");
	add_share(out, cell(statistics, 0, "started_in_target"));
	add_raw(out, "</dd></div><div><dt>Ran in target</dt><dd>");
	add_share(out, cell(statistics, 0, "ran_in_target"));
	add_raw(out, "</dd></div><div><dt>CPU</dt><dd>");
	add_share(out, cell(statistics, 0, "cpu_share"));
	add_raw(out, "</dd></div><div><dt>Counted since</dt><dd>");
	add_time(out, cell(statistics, 0, "since"));
	add_raw(out, "</dd></div></dl></section>\n");
}

static void
add_advice(Page *page, const char *worker)
{
	Buffer	   *out = &page->out;
	Answer	   *advice = page_ask(page, advice_sql, 0);

	add_raw(out, "<section id=\"advice\"><h2>Advice</h2>");
	if (!is_problem(page, advice, "function check_workers()"))
	{
		if (findings(advice, worker) == 0)
			add_raw(out, "<p class=\"good\">Nothing to be said.</p>");
		for (int i = 0; i < rows(advice); i++)
			if (strcmp(cell(advice, i, "worker"), worker) == 0)
				add(out, "<p><strong>%h</strong>. <span class=\"hint\">%h</span></p>", cell(advice, i, "finding"), cell(advice, i, "advice"));
	}
	add_raw(out, "</section>\n");
}

void
page_worker(Page *page)
{
	Buffer	   *out = &page->out;
	const char *name = param(&page->query, "name");
	Answer	   *worker = page_ask(page, worker_sql, 1, name);
	Answer	   *statistics = page_ask(page, statistics_sql, 1, name);

	if (worker->result && rows(worker) == 0)
	{
		page_error(page, 404, "No such worker", "No worker of that name is defined. Jobs of it may wait all the same.");
		return;
	}
	page_begin(page, name ? name : "Worker", "/workers");
	if (!is_problem(page, worker, "view worker"))
	{
		add_raw(out, "<div class=\"bar\">");
		if (!is_true(worker, 0, "enabled"))
			add_raw(out, "<span class=\"tag warn\">disabled</span>");
		add_broken(page, worker, 0);
		add_switch(page, name, is_true(worker, 0, "enabled"));
		add_close(page, name, worker, 0);
		add(out, "<a href=\"%r/jobs?worker=%u\">Its jobs</a></div>\n", options.prefix, name);
		if (rows(statistics) > 0)
			add_statistics(page, statistics);
		add_advice(page, name);
		add_raw(out, "<section><h2>Definition</h2>");
		add_all(out, worker);
		add_raw(out, "</section>\n");
	}
	page_end(page);
}
