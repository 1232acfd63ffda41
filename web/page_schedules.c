/*
 * page_schedules.c
 *		Schedules: when they ran and will run; run now, pause, resume. And who has subscribed to which events.
 */
#include "page.h"

static const char schedules_sql[] =
	"SELECT s.*, left(s.args::text, 200) AS shown_args, left(s.command, 300) AS shown_command FROM queue_jobs.schedule s ORDER BY s.name LIMIT 1000";

static void
add_sub(Buffer *out, const char *word, const char *value)
{
	if (value)
		add(out, "<small class=\"sub\">%r %h</small>", word, value);
}

/* Ticks that a schedule missed, since a time on. */
static void
add_missed(Page *page, const char *name)
{
	if (options.read_only)
		return;
	form_begin(page, "run_missed", "button move");
	form_hidden(page, "schedule", name);
	add(&page->out, "<input name=\"since\" required maxlength=\"100\" placeholder=\"2026-12-31 08:00\" aria-label=\"Enqueue what %h missed since\">"
		"<button>Make up since…</button>", name);
	form_end(page);
}

static void
add_row(Page *page, const Answer *schedules, int row)
{
	Buffer	   *out = &page->out;
	const char *name = cell(schedules, row, "name");

	add(out, "<tr data-key=\"%h\"><th scope=\"row\">%h</th><td class=\"cron\"><code>%h</code><small class=\"sub\">%h</small>", name, name,
		cell(schedules, row, "cron"), cell(schedules, row, "timezone"));
	add_sub(out, "from", cell(schedules, row, "starts_at"));
	add_sub(out, "until", cell(schedules, row, "ends_at"));
	add_sub(out, "spread over", cell(schedules, row, "jitter"));
	add_raw(out, "</td><td>");
	add_worker_link(out, cell(schedules, row, "worker"));
	if (!options.hide_args)
		add(out, " <code>%h%h</code>", cell(schedules, row, "shown_args"), cell(schedules, row, "shown_command"));
	else if (cell(schedules, row, "shown_command"))
		add_raw(out, "SQL command");
	add_sub(out, "in", cell(schedules, row, "queue"));
	add_raw(out, "</td><td class=\"n\">");
	if (is_true(schedules, row, "paused"))
		add_raw(out, "paused");
	else
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
	if (is_true(schedules, row, "paused"))
		add_button(page, "resume_schedule", "schedule", name, "Resume", "");
	else
		add_button(page, "pause_schedule", "schedule", name, "Pause", "");
	add_missed(page, name);
	add_raw(out, "</td></tr>\n");
}

static const char subscriptions_sql[] =
	"SELECT s.event, s.worker, s.owner, left(s.filter::text, 200) AS shown_filter FROM queue_jobs.event_subscription s ORDER BY s.event, s.worker, s.owner LIMIT 1000";

static void
add_subscriptions(Page *page)
{
	Buffer	   *out = &page->out;
	Answer	   *subscriptions = page_ask(page, subscriptions_sql, 0);

	if (is_problem(page, subscriptions, "view event_subscription") || rows(subscriptions) == 0)
		return;
	add_raw(out, "<h2>Subscriptions to events</h2><div class=\"scroll\"><table id=\"subscriptions\" data-live><thead><tr><th scope=\"col\">Event</th>"
			"<th scope=\"col\">Worker</th><th scope=\"col\">Role</th><th scope=\"col\">Payload contains</th></tr></thead><tbody>\n");
	for (int i = 0; i < rows(subscriptions); i++)
	{
		add(out, "<tr data-key=\"%h %h %h\"><th scope=\"row\">%h</th><td>", cell(subscriptions, i, "event"), cell(subscriptions, i, "worker"),
			cell(subscriptions, i, "owner"), cell(subscriptions, i, "event"));
		add_worker_link(out, cell(subscriptions, i, "worker"));
		add(out, "</td><td>%h</td><td><code>%h</code></td></tr>\n", cell(subscriptions, i, "owner"),
			options.hide_args ? "" : cell(subscriptions, i, "shown_filter"));
	}
	add_raw(out, "</tbody></table></div>\n");
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
		add_subscriptions(page);
	}
	page_end(page);
}
