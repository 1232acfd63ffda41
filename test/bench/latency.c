/*
 * latency.c
 *		How long after its commit does a job start, on an idle server? Beside it, in the same run, what a queue that is
 *		woken by LISTEN/NOTIFY pays before it can even ask for its job.
 *
 *	latency CONNINFO [--jobs=500] [--pause=10] [--cold=10]
 *
 * One at a time, with a pause (milliseconds) between them, in turn: a transaction that enqueues a job, and one that
 * inserts a row and notifies. Both commit with the server's default, synchronously. Times are read from the one clock of
 * this machine: by the client just before it sends COMMIT and as soon as COMMIT has returned; by the handler as its first
 * statement (clock_timestamp()); by the listening client when it has the notification. "There and back": the listener
 * answers by a notification of its own, until the first client has that.
 *
 * A job can start before its COMMIT has returned to the client: then its time since then is negative.
 *
 * "cold" is the start of a job in a database in which no process of the extension is left, so that a scheduler and an
 * executor have to be started first.
 */
#include <poll.h>

#include "bench.h"

#define MAX_JOBS 100000

typedef struct Series
{
	const char *label;
	double		ms[MAX_JOBS];
	int			n;
} Series;

static Series since_commit_sent = {.label = "job: COMMIT sent -> handler starts"};
static Series since_commit_returned = {.label = "job: COMMIT returned -> handler starts"};
static Series notify_one_way = {.label = "NOTIFY: COMMIT sent -> listener has it"};
static Series notify_round_trip = {.label = "NOTIFY: there and back"};
static Series cold_start = {.label = "cold: COMMIT sent -> handler starts"};

static long long commit_sent[MAX_JOBS];
static long long commit_returned[MAX_JOBS];

static void
add(Series *series, long long us)
{
	series->ms[series->n++] = us / 1000.0;
}

static void
print(Series *series)
{
	if (series->n == 0)
		return;
	qsort(series->ms, series->n, sizeof(double), by_value);
	printf("%-40s %8.3f %8.3f %8.3f %8.3f\n", series->label,
		   percentile(series->ms, series->n, 50), percentile(series->ms, series->n, 95),
		   percentile(series->ms, series->n, 99), series->ms[series->n - 1]);
}

static void
set_up(PGconn *conn)
{
	run(conn, "SET client_min_messages = warning;"
		"CREATE TABLE IF NOT EXISTS started (n int PRIMARY KEY, at timestamptz NOT NULL);"
		"CREATE TABLE IF NOT EXISTS noted (n int PRIMARY KEY);"
		"TRUNCATE started, noted;"
		"CREATE OR REPLACE FUNCTION note_start(n int) RETURNS void LANGUAGE plpgsql AS $$"
		"  DECLARE first_of_all timestamptz := clock_timestamp();"
		"  BEGIN INSERT INTO public.started VALUES (n, first_of_all); END $$;"
		"SELECT queue_jobs.define_worker('note_start', 'public.note_start')");
}

/* Enqueues job number n; when its COMMIT was sent and returned is noted. */
static void
commit_job(PGconn *conn, int n)
{
	char		sql[200];

	snprintf(sql, sizeof(sql), "BEGIN; SELECT queue_jobs.enqueue('note_start', '{\"n\": %d}')", n);
	run(conn, sql);
	commit_sent[n] = now_us();
	run(conn, "COMMIT");
	commit_returned[n] = now_us();
}

static void
wait_for_notification(PGconn *conn)
{
	PGnotify   *notification;

	while ((notification = PQnotifies(conn)) == NULL)
	{
		struct pollfd fd = {.fd = PQsocket(conn),.events = POLLIN};

		poll(&fd, 1, -1);
		PQconsumeInput(conn);
	}
	PQfreemem(notification);
}

static void
notify(PGconn *conn, PGconn *listener, int n)
{
	char		sql[100];
	long long	sent;

	snprintf(sql, sizeof(sql), "BEGIN; INSERT INTO noted VALUES (%d); NOTIFY there", n);
	run(conn, sql);
	sent = now_us();
	run(conn, "COMMIT");
	wait_for_notification(listener);
	add(&notify_one_way, now_us() - sent);
	run(listener, "NOTIFY back");
	wait_for_notification(conn);
	add(&notify_round_trip, now_us() - sent);
}

static void
wait_until(PGconn *conn, const char *condition)
{
	for (int i = 0; query_number(conn, condition) == 0; i++)
	{
		if (i == 6000)
		{
			fprintf(stderr, "gave up waiting for: %s\n", condition);
			exit(1);
		}
		sleep_us(10000);
	}
}

static void
wait_for_jobs(PGconn *conn, int count)
{
	char		condition[100];

	snprintf(condition, sizeof(condition), "SELECT (count(*) = %d)::int FROM started", count);
	wait_until(conn, condition);
}

/* When job number n started, in microseconds since 1970. */
static long long
started(PGconn *conn, int n)
{
	char		sql[100];
	PGresult   *result;
	long long	us;

	snprintf(sql, sizeof(sql), "SELECT (extract(epoch FROM at) * 1000000)::bigint FROM started WHERE n = %d", n);
	result = query(conn, sql);
	us = atoll(PQgetvalue(result, 0, 0));
	PQclear(result);
	return us;
}

static void
measure_warm(PGconn *conn, PGconn *listener, int jobs, long pause)
{
	commit_job(conn, 0);		/* the first one starts the processes, and does not count */
	wait_for_jobs(conn, 1);
	for (int n = 1; n <= jobs; n++)
	{
		sleep_us(pause * 1000);
		commit_job(conn, n);
		sleep_us(pause * 1000);
		notify(conn, listener, n);
	}
	wait_for_jobs(conn, jobs + 1);
	for (int n = 1; n <= jobs; n++)
	{
		add(&since_commit_sent, started(conn, n) - commit_sent[n]);
		add(&since_commit_returned, started(conn, n) - commit_returned[n]);
	}
}

static void
measure_cold(PGconn *conn, int first, int jobs)
{
	if (jobs > 0)
	{
		run(conn, "ALTER SYSTEM SET queue_jobs.idle_timeout = '50ms'");
		run(conn, "SELECT pg_reload_conf()");
	}
	for (int n = first; n < first + jobs; n++)
	{
		wait_until(conn, "SELECT (count(*) = 0)::int FROM pg_stat_activity"
				   " WHERE backend_type IN ('queue_jobs scheduler', 'queue_jobs executor')");
		commit_job(conn, n);
		wait_for_jobs(conn, n + 1);
		add(&cold_start, started(conn, n) - commit_sent[n]);
	}
}

int
main(int argc, char **argv)
{
	PGconn	   *conn;
	PGconn	   *listener;
	int			jobs = option(argc, argv, "jobs", 500);
	int			cold = option(argc, argv, "cold", 10);

	if (argc < 2 || jobs < 1 || cold < 0 || jobs + cold >= MAX_JOBS)
	{
		fprintf(stderr, "usage: latency CONNINFO [--jobs=500] [--pause=10] [--cold=10]\n");
		return 2;
	}
	conn = connect_to(argv[1]);
	listener = connect_to(argv[1]);
	set_up(conn);
	run(listener, "LISTEN there");
	run(conn, "LISTEN back");
	measure_warm(conn, listener, jobs, option(argc, argv, "pause", 10));
	measure_cold(conn, jobs + 1, cold);

	printf("%d jobs and %d notifications in turn; %d cold starts; milliseconds\n", jobs, jobs, cold);
	printf("%-40s %8s %8s %8s %8s\n", "", "p50", "p95", "p99", "max");
	print(&since_commit_sent);
	print(&since_commit_returned);
	print(&notify_one_way);
	print(&notify_round_trip);
	print(&cold_start);
	PQfinish(listener);
	PQfinish(conn);
	return 0;
}
