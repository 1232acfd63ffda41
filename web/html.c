/*
 * html.c
 *		What all pages are made of.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "assets.h"
#include "page.h"

static const struct
{
	const char *path;
	const char *name;
}			navigation[] =
{
	{"/", "Overview"},
	{"/jobs", "Jobs"},
	{"/queues", "Queues"},
	{"/workers", "Workers"},
	{"/schedules", "Schedules"},
	{"/batches", "Batches"},
	{"/executors", "Executors"},
	{"/replicas", "Replicas"},
};

static const char version_sql[] = "SELECT extversion FROM pg_extension WHERE extname = 'queue_jobs'";

static void
add_navigation(Page *page, const char *nav)
{
	add_raw(&page->out, "<nav aria-label=\"Pages\"><ul>");
	for (size_t i = 0; i < sizeof(navigation) / sizeof(navigation[0]); i++)
		add(&page->out, "<li><a href=\"%r%r\"%r>%r</a></li>", options.prefix, navigation[i].path,
			nav && strcmp(nav, navigation[i].path) == 0 ? " aria-current=\"page\"" : "", navigation[i].name);
	add_raw(&page->out, "</ul></nav>");
}

static void
add_identity(Page *page)
{
	Buffer	   *out = &page->out;

	if (page->viewer == NULL)
		return;
	add(out, "<div class=\"who\"><span title=\"database\">%h</span> <span title=\"role\">%h</span>",
		viewer_database(page->viewer), viewer_role(page->viewer));
	if (options.read_only)
		add_raw(out, " <span class=\"tag\">read only</span>");
	if (options.login)
		add(out, "<form method=\"post\" action=\"%r/logout\"><input type=\"hidden\" name=\"token\" value=\"%h\">"
			"<button class=\"quiet\">Sign out</button></form>", options.prefix, page->token);
	add_raw(out, "</div>");
}

void
page_begin(Page *page, const char *title, const char *nav)
{
	Buffer	   *out = &page->out;

	add(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>%h · queue_jobs</title>"
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">"
		"<link rel=\"icon\" href=\"data:,\">"
		"<link rel=\"stylesheet\" href=\"%r/style.css?%r\"><script src=\"%r/script.js?%r\" defer></script></head>\n"
		"<body><a class=\"skip\" href=\"#main\">Skip to content</a><header><a class=\"brand\" href=\"%r/\">queue_jobs</a>",
		title, options.prefix, asset_version, options.prefix, asset_version, options.prefix);
	if (page->viewer)
		add_navigation(page, nav);
	add_identity(page);
	add(out, "</header>\n<main id=\"main\" tabindex=\"-1\"><h1>%h</h1>\n", title);
	if (page->said)
		add(out, "<p class=\"said\" role=\"status\">%h</p>\n", page->said);
}

void
page_end(Page *page)
{
	add_raw(&page->out, "</main>\n<footer><span id=\"live\" role=\"status\"></span></footer></body></html>\n");
}

void
page_error(Page *page, int status, const char *title, const char *text)
{
	page->out.length = 0;
	page->status = status;
	page_begin(page, title, NULL);
	add(&page->out, "<p class=\"problem\" role=\"alert\">%h</p>\n", text);
	page_end(page);
}

void
page_redirect(Page *page, const char *path)
{
	Buffer		location;

	buffer_init(&location);
	add(&location, "%r%r", options.prefix, path);
	page->status = 303;
	page->location = location.data;
}

Answer *
page_keep(Page *page, Answer *answer)
{
	if (page->answer_count == MAX_ANSWERS)
		abort();
	page->answers[page->answer_count++] = answer;
	return answer;
}

Answer *
page_ask(Page *page, const char *sql, int count,...)
{
	const char *values[16];
	va_list		list;

	va_start(list, count);
	for (int i = 0; i < count; i++)
		values[i] = va_arg(list, const char *);
	va_end(list);
	return page_keep(page, ask(page->viewer, sql, count, values));
}

int
rows(const Answer *answer)
{
	return answer->result ? PQntuples(answer->result) : 0;
}

const char *
cell(const Answer *answer, int row, const char *column)
{
	int			number = PQfnumber(answer->result, column);

	if (number < 0 || PQgetisnull(answer->result, row, number))
		return NULL;
	return PQgetvalue(answer->result, row, number);
}

double
number(const Answer *answer, int row, const char *column)
{
	const char *value = cell(answer, row, column);

	return value ? parse_number(value) : 0;
}

bool
is_text(const char *value, const char *expected)
{
	return value && strcmp(value, expected) == 0;
}

bool
is_true(const Answer *answer, int row, const char *column)
{
	const char *value = cell(answer, row, column);

	return value && *value == 't';
}

static void
add_missing(Page *page, const char *what)
{
	Answer	   *version = page_ask(page, version_sql, 0);

	if (version->result && rows(version) == 0)
		add_raw(&page->out, "<p class=\"missing\">This database does not have the extension: <code>CREATE EXTENSION queue_jobs</code>.</p>\n");
	else
		add(&page->out, "<p class=\"missing\">queue_jobs %h of this database has no %h. A later version has: <code>ALTER EXTENSION queue_jobs UPDATE</code>.</p>\n",
			version->result ? cell(version, 0, "extversion") : NULL, what);
}

bool
is_problem(Page *page, const Answer *answer, const char *what)
{
	Buffer	   *out = &page->out;

	if (answer->result)
		return false;
	/* undefined table, function, column, schema; insufficient privilege */
	if (is_text(answer->sqlstate, "42P01") || is_text(answer->sqlstate, "42883") || is_text(answer->sqlstate, "42703") ||
		is_text(answer->sqlstate, "3F000"))
		add_missing(page, what);
	else if (is_text(answer->sqlstate, "42501"))
		add(out, "<p class=\"missing\">Role <strong>%h</strong> may not see the %h (%h). <code>GRANT queue_jobs_read</code> to it lets it.</p>\n",
			viewer_role(page->viewer), what, answer->message);
	else
		add(out, "<p class=\"problem\" role=\"alert\">The %h could not be read: %h%r%h</p>\n", what, answer->message,
			answer->detail ? ". " : "", answer->detail);
	return true;
}

void
add_count(Buffer *out, double count)
{
	char		digits[32];
	int			length;

	snprintf(digits, sizeof(digits), "%.0f", count);
	length = (int) strlen(digits);
	for (int i = 0; i < length; i++)
	{
		add_bytes(out, &digits[i], 1);
		if ((length - i) % 3 == 1 && i + 1 < length && digits[i] != '-')
			add_raw(out, ",");
	}
}

static void
add_time_span(Buffer *out, double seconds, bool with_tenths)
{
	static const struct
	{
		double		below;
		double		unit;
		const char *name;
	}			units[] =
	{
		{0.001, 1e-6, "µs"}, {1, 0.001, "ms"}, {100, 1, "s"}, {6000, 60, "min"}, {360000, 3600, "h"}, {HUGE_VAL, 86400, "d"}
	};
	char		text[48];
	int			i = 0;

	while (seconds >= units[i].below)
		i++;
	seconds /= units[i].unit;
	snprintf(text, sizeof(text), with_tenths && seconds < 9.95 && i < 3 && seconds > 0 ? "%.1f %s" : "%.0f %s", seconds, units[i].name);
	add_raw(out, text);
}

void
add_seconds(Buffer *out, double seconds)
{
	add_time_span(out, seconds, true);
}

/* A share as the database gives it, as a percentage. */
void
add_share(Buffer *out, const char *share)
{
	char		text[32];
	double		value;

	if (share == NULL)
		return;
	value = parse_number(share);
	snprintf(text, sizeof(text), value > 0.99 && value < 1 ? "%.2f %%" : "%.0f %%", 100 * value);
	add_raw(out, text);
}

/* In seconds since the epoch; the sessions' time zone is UTC. */
static bool
parse_timestamp(const char *timestamp, double *epoch)
{
	struct tm	t = {0};
	const char *seconds = strptime(timestamp, "%Y-%m-%d %H:%M:", &t);

	if (seconds == NULL)
		return false;
	*epoch = (double) timegm(&t) + strtod(seconds, NULL);
	return true;
}

double
age_of(const char *timestamp)
{
	struct timespec now;
	double		epoch;

	if (timestamp == NULL || !parse_timestamp(timestamp, &epoch))
		return 0;
	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec + now.tv_nsec / 1e9 - epoch;
}

/* As HTML wants it. */
static void
add_iso(Buffer *out, double epoch)
{
	time_t		second = (time_t) floor(epoch);
	struct tm	t;
	char		text[64];

	gmtime_r(&second, &t);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &t);
	add_raw(out, text);
}

void
add_time(Buffer *out, const char *timestamp)
{
	double		epoch,
				age = age_of(timestamp);

	if (timestamp == NULL)
		return;
	if (!parse_timestamp(timestamp, &epoch))
	{
		add_html(out, timestamp);
		return;
	}
	add(out, "<time datetime=\"");
	add_iso(out, epoch);
	add(out, "\" title=\"%h\">", timestamp);
	if (fabs(age) < 1)
		add_raw(out, "now");
	else
	{
		add_raw(out, age < 0 ? "in " : "");
		add_time_span(out, floor(fabs(age)), false);
		add_raw(out, age > 0 ? " ago" : "");
	}
	add_raw(out, "</time>");
}

void
add_state(Buffer *out, const char *state)
{
	if (state)
		add(out, "<span class=\"state %h\">%h</span>", state, state);
}

void
add_report(Buffer *out, const Answer *jobs, int row)
{
	const char *progress = cell(jobs, row, "progress");
	const char *message = options.hide_args ? NULL : cell(jobs, row, "message");
	double		share = number(jobs, row, "progress");

	if (progress && share >= 0 && share <= 1)
	{
		add_raw(out, "<svg class=\"progress\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"progress\">");
		add(out, "<rect class=\"all\" width=\"100\" height=\"8\"/><rect class=\"done\" width=\"%d\" height=\"8\"/></svg> ", (int) (100 * share));
		add_share(out, progress);
	}
	else if (progress)
		add(out, "%h", progress);
	if (message)
		add(out, "%r<span class=\"message\">%h</span>", progress ? " " : "", message);
}

void
add_job_link(Buffer *out, const char *id)
{
	if (id)
		add(out, "<a href=\"%r/jobs/%u\">%h</a>", options.prefix, id, id);
}

void
add_queue_link(Buffer *out, const char *queue)
{
	if (queue)
		add(out, "<a href=\"%r/jobs?queue=%u\">%h</a>", options.prefix, queue, queue);
}

void
add_worker_link(Buffer *out, const char *worker)
{
	if (worker)
		add(out, "<a href=\"%r/worker?name=%u\">%h</a>", options.prefix, worker, worker);
}

/* Large texts are folded. */
void
add_code(Buffer *out, const char *summary, const char *text)
{
	if (text == NULL)
		return;
	if (strlen(text) <= 2000)
		add(out, "<pre tabindex=\"0\">%h</pre>\n", text);
	else
		add(out, "<details data-key=\"%h\"><summary>%h, %l kB</summary><pre tabindex=\"0\">%h</pre></details>\n", summary, summary,
			(long long) strlen(text) / 1000, text);
}

void
form_begin(Page *page, const char *action, const char *class)
{
	add(&page->out, "<form method=\"post\" action=\"%r/action/%u\" class=\"%h\">", options.prefix, action, class);
	form_hidden(page, "token", page->token);
	form_hidden(page, "back", page->target);
}

void
form_hidden(Page *page, const char *name, const char *value)
{
	if (value)
		add(&page->out, "<input type=\"hidden\" name=\"%h\" value=\"%h\">", name, value);
}

void
form_end(Page *page)
{
	add_raw(&page->out, "</form>");
}

void
add_button(Page *page, const char *action, const char *name, const char *value, const char *label, const char *class)
{
	if (options.read_only)
		return;
	form_begin(page, action, "button");
	form_hidden(page, name, value);
	add(&page->out, "<button class=\"%h\">%h</button>", class, label);
	form_end(page);
}
