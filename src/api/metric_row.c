/*
 * metric_row.c
 *		The rows of the view "metric"; see metric_row.h.
 */
#include "postgres.h"

#include "compat.h"
#include "job.h"
#include "metric_row.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

void
label(Labels *labels, const char *key, const char *value)
{
	Assert(labels->count < MOST_LABELS);
	labels->pairs[labels->count].key = key;
	labels->pairs[labels->count++].value = value;
}

static Datum
labels_datum(const Labels *labels)
{
	QjJsonbState state = {0};

	QjPushJsonb(&state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; labels != NULL && i < labels->count; i++)
	{
		JsonbValue	value = jsonb_string(labels->pairs[i].value);

		jsonb_push_member(&state, labels->pairs[i].key, &value);
	}
	QjPushJsonb(&state, WJB_END_OBJECT, NULL);
	return JsonbPGetDatum(JsonbValueToJsonb(state.result));
}

static void
put(MetricRows *rows, const char *name, const char *type, const char *help, const Labels *labels,
	double value)
{
	MemoryContext old = MemoryContextSwitchTo(rows->each);
	Datum		values[5] = {CStringGetTextDatum(name), CStringGetTextDatum(type), CStringGetTextDatum(help),
							 labels_datum(labels), Float8GetDatum(value)};
	bool		nulls[5] = {0};

	tuplestore_putvalues(rows->result->setResult, rows->result->setDesc, values, nulls);
	MemoryContextSwitchTo(old);
	MemoryContextReset(rows->each);
}

void
put_counter(MetricRows *rows, const char *name, const char *help, const Labels *labels, double value)
{
	put(rows, name, "counter", help, labels, value);
}

void
put_gauge(MetricRows *rows, const char *name, const char *help, const Labels *labels, double value)
{
	put(rows, name, "gauge", help, labels, value);
}

static void
put_bucket(MetricRows *rows, const char *name, const char *help, const Labels *labels, int bound,
		   uint64 count)
{
	Labels		with_bound = *labels;
	char		le[32] = "+Inf";

	if (bound < HISTOGRAM_BOUNDS)
		snprintf(le, sizeof(le), "%g", histogram_bounds[bound]);
	label(&with_bound, "le", le);
	put(rows, name, "histogram", help, &with_bound, (double) count);
}

/* Each bucket of Prometheus' has what is in those below it, too. */
void
put_histogram(MetricRows *rows, const char *name, const char *help, const Labels *labels,
			  const TimeHistogram *histogram)
{
	char		part[NAMEDATALEN];
	uint64		count = 0;

	snprintf(part, sizeof(part), "%s_bucket", name);
	for (int i = 0; i <= HISTOGRAM_BOUNDS; i++)
	{
		count += histogram->buckets[i];
		put_bucket(rows, part, help, labels, i, count);
	}
	snprintf(part, sizeof(part), "%s_sum", name);
	put(rows, part, "histogram", help, labels, (double) histogram->sum / USECS_PER_SEC);
	snprintf(part, sizeof(part), "%s_count", name);
	put(rows, part, "histogram", help, labels, (double) count);
}
