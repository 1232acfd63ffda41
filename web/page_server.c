/*
 * page_server.c
 *		What the server does: executors and what each is doing, jobs that applications have
 *		claimed, replicas.
 */
#include "page.h"

/* Of the server's activity a role sees its own processes, with pg_read_all_stats (pg_monitor) all. */
static const char executors_sql[] =
	"SELECT COALESCE(a.pid, r.pid) AS pid, a.usename, a.backend_type, a.state, a.wait_event_type, a.wait_event, r.job_id, r.attempt, r.started_at, j.worker, "
	"COALESCE((SELECT string_agg(format('%s (%s, %s)', b, COALESCE(h.usename, '?'), COALESCE(NULLIF(h.application_name, ''), h.backend_type, '?')), ', ') "
	"FROM unnest(pg_blocking_pids(a.pid)) b LEFT JOIN pg_stat_activity h ON h.pid = b), '') AS blocked_by "
	"FROM (SELECT * FROM pg_stat_activity WHERE backend_type LIKE 'queue_jobs %' OR application_name LIKE 'queue_jobs %') a "
	"FULL JOIN queue_jobs.running_jobs() r ON r.pid = a.pid "
	"LEFT JOIN LATERAL (SELECT x.worker FROM queue_jobs.job x WHERE x.id = r.job_id OFFSET 0) j ON true "
	"WHERE a.datname = current_database() OR a.datname IS NULL ORDER BY r.started_at, 1";
static const char claims_sql[] =
	"SELECT j.id, j.worker, j.claimant, j.owner, j.started_at, j.lease_until, j.attempt FROM queue_jobs.search_jobs(states => '{executing}', max_jobs => 500) j "
	"WHERE j.claimant IS NOT NULL ORDER BY j.started_at";
static const char replicas_sql[] = "SELECT * FROM queue_jobs.replica ORDER BY name";

static void
add_executor(Buffer *out, const Answer *executors, int row)
{
	const char *started = cell(executors, row, "started_at");
	const char *type = cell(executors, row, "backend_type") ? cell(executors, row, "backend_type") : "queue_jobs executor";
	bool		works = cell(executors, row, "job_id") != NULL;

	add(out, "<tr data-key=\"%h\"><th scope=\"row\" class=\"n\">%h</th><td>%h</td><td>%h</td><td>", cell(executors, row, "pid"), cell(executors, row, "pid"),
		type, cell(executors, row, "usename"));
	if (works)
	{
		add_job_link(out, cell(executors, row, "job_id"));
		add_raw(out, " ");
		add_worker_link(out, cell(executors, row, "worker"));
	}
	else if (is_text(type, "queue_jobs executor"))
		add_raw(out, "<span class=\"none\">idle</span>");
	add_raw(out, "</td><td class=\"n\">");
	if (started)
		add_seconds(out, age_of(started) > 0 ? age_of(started) : 0);
	add(out, "</td><td>%h%r%h</td><td class=\"note error\">%h</td></tr>\n", works ? cell(executors, row, "wait_event_type") : NULL,
		works && cell(executors, row, "wait_event") ? ": " : "", works ? cell(executors, row, "wait_event") : NULL,
		cell(executors, row, "blocked_by"));
}

static void
add_claims(Page *page)
{
	Buffer	   *out = &page->out;
	Answer	   *claims = page_ask(page, claims_sql, 0);

	add_raw(out, "<section id=\"claims\" data-live><h2>Claimed by applications</h2>");
	if (!is_problem(page, claims, "function search_jobs()"))
	{
		if (rows(claims) == 0)
			add_raw(out, "<p class=\"empty\">None.</p>");
		else
			add_raw(out, "<div class=\"scroll\"><table><thead><tr><th scope=\"col\" class=\"n\">Job</th><th scope=\"col\">Worker</th><th scope=\"col\">Claimant</th>"
					"<th scope=\"col\" class=\"n\">Since</th><th scope=\"col\" class=\"n\">Lease until</th></tr></thead><tbody>");
		for (int i = 0; i < rows(claims); i++)
		{
			add_raw(out, "<tr><th scope=\"row\" class=\"n\">");
			add_job_link(out, cell(claims, i, "id"));
			add_raw(out, "</th><td>");
			add_worker_link(out, cell(claims, i, "worker"));
			add(out, "</td><td>%h</td><td class=\"n\">", cell(claims, i, "claimant"));
			add_time(out, cell(claims, i, "started_at"));
			add_raw(out, "</td><td class=\"n\">");
			add_time(out, cell(claims, i, "lease_until"));
			add_raw(out, "</td></tr>");
		}
		add_raw(out, rows(claims) > 0 ? "</tbody></table></div>" : "");
	}
	add_raw(out, "</section>\n");
}

void
page_executors(Page *page)
{
	Buffer	   *out = &page->out;
	Answer	   *executors = page_ask(page, executors_sql, 0);

	page_begin(page, "Executors", "/executors");
	if (!is_problem(page, executors, "function running_jobs()"))
	{
		add_raw(out, "<div class=\"scroll\"><table id=\"executors\" data-live><caption class=\"hidden\">Processes of queue_jobs in this database</caption><thead><tr>"
				"<th scope=\"col\" class=\"n\">Pid</th><th scope=\"col\">Process</th><th scope=\"col\">Role</th><th scope=\"col\">Job</th>"
				"<th scope=\"col\" class=\"n\">For</th><th scope=\"col\">Waits for</th><th scope=\"col\">Blocked by</th></tr></thead><tbody>\n");
		for (int i = 0; i < rows(executors); i++)
			add_executor(out, executors, i);
		add_raw(out, "</tbody></table></div>\n");
		if (rows(executors) == 0)
			add_raw(out, "<p class=\"empty\">No process is at work, or your role may not see it (pg_monitor). They come when there is something to do.</p>\n");
	}
	add_claims(page);
	page_end(page);
}

static void
add_replica(Page *page, const Answer *replicas, int row)
{
	Buffer	   *out = &page->out;
	const char *name = cell(replicas, row, "name");
	const char *state = cell(replicas, row, "state");
	bool		paused = is_text(state, "paused");

	add(out, "<tr data-key=\"%h\"><th scope=\"row\">%h<small class=\"sub\">%h</small></th><td><span class=\"tag%r\">%h</span></td><td class=\"n\">", name, name,
		cell(replicas, row, "conninfo"), is_text(state, "ready") ? "" : " warn", state);
	if (cell(replicas, row, "lag_bytes"))
		add_count(out, number(replicas, row, "lag_bytes"));
	add(out, "</td><td class=\"n\">%h</td><td class=\"n\">", cell(replicas, row, "lag"));
	add_time(out, cell(replicas, row, "last_seen"));
	add_raw(out, "</td><td class=\"n\">");
	add_count(out, number(replicas, row, "served"));
	add(out, "</td><td class=\"note error\">%h</td><td class=\"actions\">", cell(replicas, row, "last_error"));
	add_button(page, paused ? "resume_replica" : "pause_replica", "name", name, paused ? "Resume" : "Pause", "");
	add_raw(out, "</td></tr>\n");
}

void
page_replicas(Page *page)
{
	Buffer	   *out = &page->out;
	Answer	   *replicas = page_ask(page, replicas_sql, 0);

	page_begin(page, "Replicas", "/replicas");
	if (!is_problem(page, replicas, "view replica"))
	{
		add_raw(out, "<div class=\"scroll\"><table id=\"replicas\" data-live><caption class=\"hidden\">Replicas</caption><thead><tr><th scope=\"col\">Replica</th>"
				"<th scope=\"col\">State</th><th scope=\"col\" class=\"n\">Bytes behind</th><th scope=\"col\" class=\"n\">Lag</th>"
				"<th scope=\"col\" class=\"n\">Last seen</th><th scope=\"col\" class=\"n\">Served</th><th scope=\"col\">Last error</th>"
				"<th scope=\"col\"><span class=\"hidden\">Actions</span></th></tr></thead><tbody>\n");
		for (int i = 0; i < rows(replicas); i++)
			add_replica(page, replicas, i);
		add_raw(out, "</tbody></table></div>\n");
		if (rows(replicas) == 0)
			add_raw(out, "<p class=\"empty\">No replica: jobs read from the primary.</p>\n");
	}
	page_end(page);
}
