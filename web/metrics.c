/*
 * metrics.c
 *		/metrics, in Prometheus' text format, and /healthz.
 */
#include <string.h>

#include "page.h"

/* The samples of a metric have to stand together, a histogram's in the order of its buckets. */
static const char metrics_sql[] =
	"SELECT m.name, m.type, m.help, m.value::text AS value, l.labels FROM queue_jobs.metric m CROSS JOIN LATERAL ("
	"SELECT string_agg(format('%s=\"%s\"', key, replace(replace(replace(value, E'\\\\', E'\\\\\\\\'), '\"', E'\\\\\"'), E'\\n', E'\\\\n')), ',' "
	"ORDER BY (key = 'le'), key) AS labels, max(value) FILTER (WHERE key = 'le') AS le FROM jsonb_each_text(m.labels)) l "
	"ORDER BY regexp_replace(m.name, '_(bucket|sum|count)$', ''), m.name, (m.labels - 'le')::text, CASE WHEN l.le = '+Inf' THEN 'Infinity'::float8 ELSE l.le::float8 END";
static const char health_sql[] = "SELECT name, ok, value, advice FROM queue_jobs.health() ORDER BY ok, name";
static const char alive_sql[] = "SELECT 1";

/* HELP's only escapes. */
static void
add_help(Buffer *out, const char *help)
{
	for (; help && *help; help++)
		if (*help == '\n')
			add_raw(out, "\\n");
		else if (*help == '\\')
			add_raw(out, "\\\\");
		else
			add_bytes(out, help, 1);
}

/* The name of a histogram's samples without _bucket, _sum, _count. */
static size_t
family_length(const char *name, const char *type)
{
	static const char *const suffixes[] = {"_bucket", "_sum", "_count"};
	size_t		length = strlen(name);

	if (!is_text(type, "histogram"))
		return length;
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (length > strlen(suffixes[i]) && strcmp(name + length - strlen(suffixes[i]), suffixes[i]) == 0)
			return length - strlen(suffixes[i]);
	return length;
}

static void
add_sample(Buffer *out, const Answer *metrics, int row, const char **family, size_t *length)
{
	const char *name = cell(metrics, row, "name");
	const char *type = cell(metrics, row, "type");
	size_t		this_length = family_length(name, type);

	if (*family == NULL || *length != this_length || strncmp(*family, name, this_length) != 0)
	{
		add_raw(out, "# HELP ");
		add_bytes(out, name, this_length);
		add_raw(out, " ");
		add_help(out, cell(metrics, row, "help"));
		add_raw(out, "\n# TYPE ");
		add_bytes(out, name, this_length);
		add(out, " %r\n", type);
		*family = name;
		*length = this_length;
	}
	/* Text, not HTML: the query has escaped the labels. */
	add(out, cell(metrics, row, "labels") ? "%r{%r} " : "%r%r ", name, cell(metrics, row, "labels"));
	add(out, "%r\n", cell(metrics, row, "value"));
}

void
page_metrics(Page *page)
{
	Answer	   *metrics = page_ask(page, metrics_sql, 0);
	const char *family = NULL;
	size_t		length = 0;

	page->content_type = "text/plain; version=0.0.4; charset=utf-8";
	if (metrics->result == NULL)
	{
		page->status = 503;
		add(&page->out, "# %r: %r\n", metrics->sqlstate, metrics->message);
		return;
	}
	for (int i = 0; i < rows(metrics); i++)
		if (cell(metrics, i, "value"))
			add_sample(&page->out, metrics, i, &family, &length);
}

static void
add_checks(Page *page, const Answer *health)
{
	for (int i = 0; i < rows(health); i++)
	{
		bool		ok = is_true(health, i, "ok");

		if (!ok)
			page->status = 503;
		add(&page->out, "%r %r: %r%r%r\n", ok ? "ok" : "not ok", cell(health, i, "name"), cell(health, i, "value"), ok ? "" : ". ",
			ok ? "" : cell(health, i, "advice"));
	}
}

/* Where roles sign in, it says no more than that the server can be reached. */
void
page_health(Page *page)
{
	Answer	   *health;

	page->content_type = "text/plain; charset=utf-8";
	if (options.login)
	{
		const char *keywords[] = {"connect_timeout", "dbname", NULL};
		const char *values[] = {"3", options.conninfo, NULL};

		page->status = PQpingParams(keywords, values, 1) == PQPING_OK ? 200 : 503;
		add_raw(&page->out, page->status == 200 ? "ok\n" : "not ok: the server does not answer\n");
		return;
	}
	health = page_ask(page, health_sql, 0);
	if (health->result)
		add_checks(page, health);
	else if (is_text(health->sqlstate, "42883") && page_ask(page, alive_sql, 0)->result)
		add_raw(&page->out, "ok\n");
	else
	{
		page->status = 503;
		add(&page->out, "not ok: %r\n", health->message);
	}
}
