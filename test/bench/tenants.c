/*
 * tenants.c
 *		Many databases on one server, a few of them at work at any moment: how long after its commit does the
 *		first job of a database start that has rested, and how long do those after it take?
 *
 *	tenants CONNINFO [--databases=500] [--at_work=20] [--seconds=60] [--work=3000] [--every=100] [--limit=120]
 *
 * Databases tenant_1 and so on, each with a worker "note", whose handler notes when it began. As many threads as
 * databases are at work. Each takes the database that has rested for longest, enqueues a job there every so many
 * milliseconds (each in its own transaction), for "work" milliseconds, and waits until all of them have run.
 * Times are read from the one clock of this machine: by the client just before it sends COMMIT, and by the
 * handler as its first statement. Jobs that have not run "limit" seconds after the last was enqueued are counted
 * as lost.
 */
#include <pthread.h>

#include "bench.h"

typedef struct Series
{
	const char *label;
	double	   *ms;
	int			n;
	int			size;
} Series;

static Series first = {.label = "first job after a rest"};
static Series later = {.label = "those after it"};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int *rested;				/* numbers of databases, a ring: the one that has rested for longest first */
static int	head = 0;
static int	resting;
static int	lost = 0;
static const char *conninfo;
static long databases,
			at_work,
			seconds,
			work,
			every,
			limit;
static long long begin;

static void
add(Series *series, double ms)
{
	if (series->n == series->size)
	{
		series->size = series->size ? series->size * 2 : 1024;
		series->ms = realloc(series->ms, series->size * sizeof(double));
	}
	series->ms[series->n++] = ms;
}

static void
print(Series *series)
{
	if (series->n == 0)
		return;
	qsort(series->ms, series->n, sizeof(double), by_value);
	printf("%-30s %8d %10.3f %10.3f %10.3f %10.3f\n", series->label, series->n,
		   percentile(series->ms, series->n, 50), percentile(series->ms, series->n, 95),
		   percentile(series->ms, series->n, 99), series->ms[series->n - 1]);
}

static void
enqueue(PGconn *conn, int n)
{
	char		sql[200];

	run(conn, "BEGIN");
	snprintf(sql, sizeof(sql), "SELECT queue_jobs.enqueue('note', '{\"n\": %d}')", n);
	run(conn, sql);
	snprintf(sql, sizeof(sql), "INSERT INTO sent SELECT %d, to_timestamp(%.6f)", n, now_us() / 1e6);
	run(conn, sql);
	run(conn, "COMMIT");
}

/* All that the database was asked to run; false if the time was up before. */
static int
wait_for_all(PGconn *conn, int jobs)
{
	long long	end = now_us() + limit * 1000000LL;

	while (query_number(conn, "SELECT count(*) FROM started") < jobs)
	{
		if (now_us() > end)
			return 0;
		sleep_us(50000);
	}
	return 1;
}

static void
collect(PGconn *conn, int jobs)
{
	PGresult   *result = query(conn, "SELECT n, extract(epoch FROM started.at - sent.at) * 1000 FROM sent JOIN started USING (n) ORDER BY n");

	pthread_mutex_lock(&mutex);
	for (int i = 0; i < PQntuples(result); i++)
		add(atoi(PQgetvalue(result, i, 0)) == 0 ? &first : &later, atof(PQgetvalue(result, i, 1)));
	lost += jobs - PQntuples(result);
	pthread_mutex_unlock(&mutex);
	PQclear(result);
}

static void
work_in(int database)
{
	char		where[1000];
	PGconn	   *conn;
	long long	start;
	int			jobs = 0;

	snprintf(where, sizeof(where), "%s dbname=tenant_%d", conninfo, database);
	conn = connect_to(where);
	run(conn, "TRUNCATE sent, started");
	/* what this session needs only once: not a job's affair */
	run(conn, "BEGIN; SELECT queue_jobs.enqueue('note', '{\"n\": -1}'); ROLLBACK");
	start = now_us();
	do
	{
		long long	next = start + (jobs + 1) * every * 1000LL;

		enqueue(conn, jobs++);
		if (next > now_us())
			sleep_us(next - now_us());
	} while (now_us() - start < work * 1000);
	(void) wait_for_all(conn, jobs);
	collect(conn, jobs);
	PQfinish(conn);
}

static void *
tenants(void *number)
{
	/* not all at once */
	sleep_us((long) (size_t) number * work * 1000 / at_work);
	while (now_us() - begin < seconds * 1000000LL)
	{
		int			database;

		pthread_mutex_lock(&mutex);
		database = rested[head];
		head = (head + 1) % databases;
		resting--;
		pthread_mutex_unlock(&mutex);
		work_in(database);
		pthread_mutex_lock(&mutex);
		rested[(head + resting++) % databases] = database;
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

int
main(int argc, char **argv)
{
	pthread_t  *threads;

	conninfo = argv[1];
	databases = option(argc, argv, "databases", 500);
	at_work = option(argc, argv, "at_work", 20);
	seconds = option(argc, argv, "seconds", 60);
	work = option(argc, argv, "work", 3000);
	every = option(argc, argv, "every", 100);
	limit = option(argc, argv, "limit", 120);
	threads = malloc(at_work * sizeof(pthread_t));
	rested = malloc(databases * sizeof(int));
	for (int i = 0; i < databases; i++)
		rested[i] = 1 + (i + (int) option(argc, argv, "skip", 0)) % databases;
	resting = databases;
	begin = now_us();
	for (size_t i = 0; i < (size_t) at_work; i++)
		pthread_create(&threads[i], NULL, tenants, (void *) i);
	for (int i = 0; i < at_work; i++)
		pthread_join(threads[i], NULL);
	printf("%ld databases, %ld at work, ms\n%-30s %8s %10s %10s %10s %10s\n", databases, at_work, "COMMIT sent -> handler starts", "jobs", "p50", "p95", "p99", "max");
	print(&first);
	print(&later);
	printf("%-30s %8d\n", "not run", lost);
	return 0;
}
