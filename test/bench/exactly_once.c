/*
 * exactly_once.c
 *		A backlog of jobs, run by executors and then taken by concurrent claimants: how fast, and each job once?
 *
 *	exactly_once CONNINFO [--noops=100000] [--updates=10000] [--claimants=8] [--batch=10]
 *
 * Four loads, one after the other: jobs that do nothing and jobs that each update a row of their own, run by executors;
 * then the same for claimants, processes that each claim a batch, do the work and complete it in one transaction,
 * committed synchronously, until nothing is left. Each load is enqueued while its queue is paused, and its clock runs from
 * resume() to the last job's finished_at.
 *
 * "Exactly once" means: the jobs that the history shows as completed, in their first attempt, are those that were
 * enqueued, each one time; each row was updated once; and what the claimants say that they claimed are the same jobs, each
 * one time.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

typedef struct Load
{
	const char *worker;			/* also the name of its queue */
	int			jobs;
	int			updates;		/* each job updates a row */
	int			claimants;		/* 0: run by executors */
	int			batch;
} Load;

static const char *conninfo;

static void
set_up(PGconn *conn, int rows)
{
	char		sql[200];

	run(conn, "CREATE FUNCTION do_nothing(args jsonb) RETURNS void LANGUAGE sql AS '';"
		"CREATE TABLE counter (id int PRIMARY KEY, n int NOT NULL);"
		"CREATE FUNCTION bump(id int) RETURNS void LANGUAGE sql AS 'UPDATE public.counter SET n = n + 1 WHERE id = $1';"
		"CREATE TABLE enqueued (id bigint NOT NULL);"
		"CREATE TABLE claimed (id bigint NOT NULL);"
		"SELECT queue_jobs.define_worker('noop', 'public.do_nothing'),"
		" queue_jobs.define_worker('update', 'public.bump'),"
		" queue_jobs.define_worker('claimed_noop'),"
		" queue_jobs.define_worker('claimed_update')");
	snprintf(sql, sizeof(sql), "INSERT INTO counter SELECT g, 0 FROM generate_series(1, %d) g", rows);
	run(conn, sql);
}

/* Enqueues the load behind a paused queue; returns how many seconds that took. */
static double
enqueue(PGconn *conn, const Load *load)
{
	char		sql[300];
	long long	start;

	run(conn, "TRUNCATE enqueued, claimed; UPDATE counter SET n = 0");
	run(conn, "VACUUM (ANALYZE) counter");
	snprintf(sql, sizeof(sql), "SELECT queue_jobs.pause('%s')", load->worker);
	run(conn, sql);
	snprintf(sql, sizeof(sql), "INSERT INTO enqueued SELECT queue_jobs.enqueue_many('%s',"
			 " array(SELECT jsonb_build_object('id', g) FROM generate_series(1, %d) g))", load->worker, load->jobs);
	start = now_us();
	run(conn, sql);
	return (now_us() - start) / 1e6;
}

/* ---- claimants ---- */

static PGresult *
execute(PGconn *conn, const char *sql, int nparams, const char *const *values)
{
	return check(conn, PQexecParams(conn, sql, nparams, NULL, values, NULL, NULL, 0), sql);
}

/* One batch, in one transaction; returns how many jobs it had, and adds their ids to *ids. */
static int
claim_and_work(PGconn *conn, const Load *load, const char *name, char **ids, size_t *length)
{
	const char *claim[3] = {name, load->worker, NULL};
	const char *jobs[3];
	char		number[20];
	PGresult   *result;
	int			count;

	run(conn, "BEGIN");
	snprintf(number, sizeof(number), "%d", load->batch);
	claim[2] = number;
	result = execute(conn, "SELECT count(*), array_agg(id), array_agg(attempt), array_agg(args ->> 'id'),"
					 " string_agg(id || E'\\n', '') FROM queue_jobs.claim($1, ARRAY[$2], $3)", 3, claim);
	count = atoi(PQgetvalue(result, 0, 0));
	if (count > 0)
	{
		size_t		more = PQgetlength(result, 0, 4);

		jobs[0] = PQgetvalue(result, 0, 3);
		if (load->updates)
			PQclear(execute(conn, "UPDATE counter SET n = n + 1 WHERE id = ANY ($1::int[])", 1, jobs));
		jobs[0] = PQgetvalue(result, 0, 1);
		jobs[1] = PQgetvalue(result, 0, 2);
		PQclear(execute(conn, "SELECT queue_jobs.complete_many($1::bigint[], $2::int[])", 2, jobs));
		*ids = realloc(*ids, *length + more + 1);
		memcpy(*ids + *length, PQgetvalue(result, 0, 4), more + 1);
		*length += more;
	}
	PQclear(result);
	run(conn, "COMMIT");
	return count;
}

/* Claims until nothing is left, then tells what it had. */
static void
claimant(const Load *load, int number)
{
	PGconn	   *conn = connect_to(conninfo);
	char		name[30];
	char		wait[100];
	char	   *ids = NULL;
	size_t		length = 0;

	snprintf(name, sizeof(name), "claimant %d", number);
	snprintf(wait, sizeof(wait), "CALL queue_jobs.wait_for_jobs(ARRAY['%s'], '1 min')", load->worker);
	run(conn, wait);			/* for resume() */
	while (claim_and_work(conn, load, name, &ids, &length) > 0)
		;
	PQclear(PQexec(conn, "COPY claimed FROM STDIN"));
	if ((length > 0 && PQputCopyData(conn, ids, length) != 1) || PQputCopyEnd(conn, NULL) != 1)
		exit(1);
	PQclear(check(conn, PQgetResult(conn), "COPY claimed"));
	PQfinish(conn);
	exit(0);
}

static void
start_claimants(const Load *load)
{
	fflush(stdout);
	for (int i = 0; i < load->claimants; i++)
		if (fork() == 0)
			claimant(load, i);
}

/* ---- a load ---- */

/* Waits until no job is left, as long as their number goes down. */
static void
wait_until_done(PGconn *conn)
{
	int			status;
	pid_t		pid;
	double		last = -1;

	while ((pid = wait(&status)) > 0)
		if (status != 0)
		{
			fprintf(stderr, "a claimant failed\n");
			exit(1);
		}
	for (int turn = 0; query_number(conn, "SELECT EXISTS (SELECT FROM queue_jobs.live_job)::int") != 0; turn++)
	{
		sleep_us(100000);
		if (turn % 300 == 299)
		{
			double		left = query_number(conn, "SELECT count(*) FROM queue_jobs.live_job");

			if (left == last)
			{
				fprintf(stderr, "%g jobs do not run\n", left);
				exit(1);
			}
			last = left;
		}
	}
}

/* What is wrong, as a count. */
static double
not_once(PGconn *conn, const Load *load)
{
	char		sql[900];
	char		rows[100] = "0";
	char		claims[300] = "0";

	if (load->updates)
		snprintf(rows, sizeof(rows), "(SELECT count(*) FROM counter WHERE (n = 1) <> (id <= %d))", load->jobs);
	if (load->claimants > 0)
		snprintf(claims, sizeof(claims), "(SELECT count(*) FROM enqueued e FULL JOIN"
				 " (SELECT id, count(*) AS times FROM claimed GROUP BY id) c ON c.id = e.id WHERE times IS DISTINCT FROM 1"
				 " OR e.id IS NULL)");
	snprintf(sql, sizeof(sql), "SELECT abs(%d - (SELECT count(*) FROM enqueued))"
			 " + (SELECT count(*) FROM enqueued e FULL JOIN"
			 "     (SELECT id, count(*) AS times, bool_and(state = 'completed' AND attempt = 1) AS well FROM queue_jobs.job"
			 "       WHERE worker = '%s' GROUP BY id) j ON j.id = e.id"
			 "   WHERE times IS DISTINCT FROM 1 OR NOT well OR e.id IS NULL)"
			 " + %s + %s", load->jobs, load->worker, rows, claims);
	return query_number(conn, sql);
}

/* Runs a load and prints its line; returns whether each job was done exactly once. */
static int
run_load(PGconn *conn, const Load *load)
{
	char		sql[200];
	double		enqueue_seconds = enqueue(conn, load);
	long long	start;
	double		seconds;
	double		wrong;

	start_claimants(load);
	if (load->claimants > 0)
		sleep_us(500000);		/* until they wait */
	snprintf(sql, sizeof(sql), "SELECT queue_jobs.resume('%s')", load->worker);
	start = now_us();
	run(conn, sql);
	wait_until_done(conn);
	snprintf(sql, sizeof(sql), "SELECT extract(epoch FROM max(finished_at)) - %lld / 1e6 FROM queue_jobs.job WHERE worker = '%s'",
			 start, load->worker);
	seconds = query_number(conn, sql);
	wrong = not_once(conn, load);
	printf("%-14s %8d %10.2f %8.2f %8.0f   %s\n", load->worker, load->jobs, enqueue_seconds, seconds, load->jobs / seconds,
		   wrong == 0 ? "yes" : "NO");
	fflush(stdout);
	return wrong == 0;
}

int
main(int argc, char **argv)
{
	int			noops = option(argc, argv, "noops", 100000);
	int			updates = option(argc, argv, "updates", 10000);
	int			claimants = option(argc, argv, "claimants", 8);
	int			batch = option(argc, argv, "batch", 10);
	Load		loads[] = {
		{.worker = "noop",.jobs = noops},
		{.worker = "update",.jobs = updates,.updates = 1},
		{.worker = "claimed_noop",.jobs = noops,.claimants = claimants,.batch = batch},
		{.worker = "claimed_update",.jobs = updates,.updates = 1,.claimants = claimants,.batch = batch},
	};
	PGconn	   *conn;
	int			ok = 1;

	if (argc < 2 || noops < 1 || updates < 1 || claimants < 1 || batch < 1)
	{
		fprintf(stderr, "usage: exactly_once CONNINFO [--noops=100000] [--updates=10000] [--claimants=8] [--batch=10]\n");
		return 2;
	}
	conninfo = argv[1];
	conn = connect_to(conninfo);
	set_up(conn, updates);
	printf("%.0f executors; %d claimants, each claims %d jobs at a time\n",
		   query_number(conn, "SELECT current_setting('queue_jobs.max_executors')"), claimants, batch);
	printf("%-14s %8s %10s %8s %8s   %s\n", "", "jobs", "enqueue s", "run s", "jobs/s", "each exactly once");
	for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++)
		ok = run_load(conn, &loads[i]) && ok;
	PQfinish(conn);
	return ok ? 0 : 1;
}
