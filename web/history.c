/*
 * history.c
 *		What ran and failed in each queue.
 *
 * The counters are the same whichever role reads them, so there is one history. Roles that may not
 * read them are not shown it.
 */
#include "history.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buffer.h"
#include "request.h"

#define MAX_QUEUES	500
#define MAX_GAP		60			/* seconds without a sample: then it begins again */

typedef struct Series
{
	char	   *queue;
	double		last_runs;
	double		last_failures;
	History		history;
} Series;

static const char counters_sql[] =
	"SELECT COALESCE(w.queue, s.worker), sum(s.runs)::float8 AS runs, sum(s.failures)::float8 AS failures "
	"FROM queue_jobs.worker_statistics s LEFT JOIN queue_jobs.worker w ON w.name = s.worker GROUP BY 1 ORDER BY 1 LIMIT 500";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Series series[MAX_QUEUES];
static int	series_count;
static double last_sample;

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static Series *
series_of(const char *queue)
{
	for (int i = 0; i < series_count; i++)
		if (strcmp(series[i].queue, queue) == 0)
			return &series[i];
	return NULL;
}

static void
append(History *history, double runs, double failures)
{
	if (history->count == HISTORY_SAMPLES)
	{
		memmove(history->runs, history->runs + 1, sizeof(double) * (HISTORY_SAMPLES - 1));
		memmove(history->failures, history->failures + 1, sizeof(double) * (HISTORY_SAMPLES - 1));
		history->count--;
	}
	history->runs[history->count] = runs;
	history->failures[history->count] = failures;
	history->count++;
}

/* A counter that is lower than before began again at zero. */
static double
rate(double last, double counter, double seconds)
{
	return (counter >= last ? counter - last : counter) / seconds;
}

static void
take_sample(const Answer *answer, double seconds)
{
	for (int i = 0; i < PQntuples(answer->result); i++)
	{
		Series	   *of = series_of(PQgetvalue(answer->result, i, 0));
		double		runs = parse_number(PQgetvalue(answer->result, i, 1));
		double		failures = parse_number(PQgetvalue(answer->result, i, 2));

		if (of == NULL && series_count < MAX_QUEUES)
		{
			of = &series[series_count++];
			of->queue = copy_text(PQgetvalue(answer->result, i, 0));
			of->history.count = 0;
		}
		else if (of && seconds > 0)
			append(&of->history, rate(of->last_runs, runs, seconds), rate(of->last_failures, failures, seconds));
		if (of)
		{
			of->last_runs = runs;
			of->last_failures = failures;
		}
	}
}

static void
begin_again(void)
{
	for (int i = 0; i < series_count; i++)
		free(series[i].queue);
	series_count = 0;
}

Answer *
history_ask(Viewer *viewer)
{
	Answer	   *answer = ask(viewer, counters_sql, 0, NULL);
	double		seconds;

	if (answer->result == NULL)
		return answer;
	pthread_mutex_lock(&lock);
	seconds = now() - last_sample;
	if (seconds > MAX_GAP)
		begin_again();
	if (seconds >= HISTORY_SECONDS - 0.5)
	{
		take_sample(answer, seconds);
		last_sample = now();
	}
	pthread_mutex_unlock(&lock);
	return answer;
}

bool
history_of(const char *queue, History *history)
{
	Series	   *of;

	pthread_mutex_lock(&lock);
	of = series_of(queue);
	if (of)
		*history = of->history;
	pthread_mutex_unlock(&lock);
	return of != NULL && history->count > 0;
}
