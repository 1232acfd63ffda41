/*
 * metric_server.h
 *		What the view "metric" has of the server and the database as a whole.
 */
#ifndef QUEUE_JOBS_METRIC_SERVER_H
#define QUEUE_JOBS_METRIC_SERVER_H

#include "metric_row.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"

/* 0 for times to come, and for DT_NOEND. */
extern double seconds_since(TimestampTz time);

/* Executors, batches, replicas, schedules, the oldest snapshot, and the version. */
extern void put_server_metrics(MetricRows *rows, Snapshot snapshot);

#endif
