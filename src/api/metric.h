/*
 * metric.h
 *		The rows of the view "metric".
 */
#ifndef QUEUE_JOBS_METRIC_H
#define QUEUE_JOBS_METRIC_H

#include "nodes/execnodes.h"
#include "statistics.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"

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

/* ---- The samples of the view "metric" for the server and the database as a whole (metric_server.c) ---- */

/* 0 for times to come, and for DT_NOEND. */
extern double seconds_since(TimestampTz time);

/* Executors, batches, replicas, schedules, the oldest snapshot, and the version. */
extern void put_server_metrics(MetricRows *rows, Snapshot snapshot);

#endif
