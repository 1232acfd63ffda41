/*
 * metric_row.h
 *		The rows of the view "metric".
 */
#ifndef QUEUE_JOBS_METRIC_ROW_H
#define QUEUE_JOBS_METRIC_ROW_H

#include "nodes/execnodes.h"
#include "statistics.h"

#define MOST_LABELS 7

typedef struct Labels
{
	int			count;
	struct
	{
		const char *key;
		const char *value;
	}			pairs[MOST_LABELS];
} Labels;

/* Where rows go to. */
typedef struct MetricRows
{
	ReturnSetInfo *result;
	MemoryContext each;			/* of one row */
} MetricRows;

/* The labels must have room for one more. */
extern void label(Labels *labels, const char *key, const char *value);

/* A sample; "labels" may be NULL. */
extern void put_counter(MetricRows *rows, const char *name, const char *help, const Labels *labels,
						double value);
extern void put_gauge(MetricRows *rows, const char *name, const char *help, const Labels *labels,
					  double value);

/* The samples of a histogram of that name, which get the label "le", too. */
extern void put_histogram(MetricRows *rows, const char *name, const char *help, const Labels *labels,
						  const TimeHistogram *histogram);

#endif
