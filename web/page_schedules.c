/*
 * page_schedules.c
 *		Schedules: when they ran and will run, and run now.
 */
#include "page.h"

static const char schedules_sql[] =
	"SELECT s.*, left(s.args::text, 200) AS shown_args, left(s.command, 300) AS shown_command FROM queue_jobs.schedule s ORDER BY s.name LIMIT 1000";

static void
add_row(Page *page, const Answer *schedules, int row)
{
	Buffer	   *out = &page->out;
	const char *name = cell(schedules, row, "name");

	add(out, "<tr data-key=\"%h\"><th scope=\"row\">%h</th><td class=\"cron\"><code>%h</code><small class=\"sub\">%h</small></td><td>", name, name,
		cell(schedules, row, "cron"), cell(schedules, row, "timezone"));
	add_worker_link(out, cell(schedules, row, "worker"));
	if (!options.hide_args)
		add(out, " <code>%h%h</code>", cell(schedules, row, "shown_args"), cell(schedules, row, "shown_command"));
	else if (cell(schedules, row, "shown_command"))
		add_raw(out, "SQL command");
	add_raw(out, "</td><td class=\"n\">");
	add_time(out, cell(schedules, row, "next_run"));
	add_raw(out, "</td><td class=\"n\">");
	add_time(out, cell(schedules, row, "last_run"));
	add_raw(out, "</td><td class=\"last\">");
	add_state(out, cell(schedules, row, "last_state"));
	add_raw(out, " ");
	add_job_link(out, cell(schedules, row, "last_job"));
	add_raw(out, "</td><td class=\"n\">");
	add_count(out, number(schedules, row, "skipped"));
	add(out, "</td><td class=\"note error\">%h</td><td class=\"actions\">", cell(schedules, row, "error"));
	add_button(page, "run_now", "schedule", name, "Run now", "");
	add_raw(out, "</td></tr>\n");
}

void
page_schedules(Page *page)
{
	Buffer	   *out = &page->out;
	Answer	   *schedules = page_ask(page, schedules_sql, 0);

	page_begin(page, "Schedules", "/schedules");
	if (!is_problem(page, schedules, "view schedule"))
	{
		add_raw(out, "<div class=\"scroll\"><table id=\"schedules\" data-live><caption class=\"hidden\">Schedules</caption><thead><tr><th scope=\"col\">Schedule</th>"
				"<th scope=\"col\">Times</th><th scope=\"col\">What</th><th scope=\"col\" class=\"n\">Next</th><th scope=\"col\" class=\"n\">Last</th>"
				"<th scope=\"col\">Last job</th><th scope=\"col\" class=\"n\">Skipped</th><th scope=\"col\">Error</th>"
				"<th scope=\"col\"><span class=\"hidden\">Actions</span></th></tr></thead><tbody>\n");
		for (int i = 0; i < rows(schedules); i++)
			add_row(page, schedules, i);
		add_raw(out, "</tbody></table></div>\n");
		if (rows(schedules) == 0)
			add_raw(out, "<p class=\"empty\">No schedule of yours.</p>\n");
	}
	page_end(page);
}
