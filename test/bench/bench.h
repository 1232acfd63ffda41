/*
 * bench.h
 *		What the programs of this directory share: SQL that must succeed, options, the clock, percentiles.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libpq-fe.h>

/* Wall clock, which clock_timestamp() reads too, in microseconds since 1970. */
static inline long long
now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static inline void
sleep_us(long us)
{
	struct timespec t = {.tv_sec = us / 1000000,.tv_nsec = us % 1000000 * 1000};

	nanosleep(&t, NULL);
}

/* For qsort() of doubles. */
static inline int
by_value(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return (x > y) - (x < y);
}

/* The smallest of the sorted values that so many percent do not exceed. */
static inline double
percentile(const double *sorted, int n, int percent)
{
	int			rank = (n * percent + 99) / 100;

	return sorted[rank > 0 ? rank - 1 : 0];
}

static inline PGconn *
connect_to(const char *conninfo)
{
	PGconn	   *conn = PQconnectdb(conninfo);

	if (PQstatus(conn) != CONNECTION_OK)
	{
		fputs(PQerrorMessage(conn), stderr);
		exit(1);
	}
	PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
	return conn;
}

/* A result that must be a success; the program ends otherwise. */
static inline PGresult *
check(PGconn *conn, PGresult *result, const char *sql)
{
	if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
	{
		fprintf(stderr, "%s%s\n", PQerrorMessage(conn), sql);
		exit(1);
	}
	return result;
}

static inline PGresult *
query(PGconn *conn, const char *sql)
{
	return check(conn, PQexec(conn, sql), sql);
}

static inline void
run(PGconn *conn, const char *sql)
{
	PQclear(query(conn, sql));
}

/* One number. */
static inline double
query_number(PGconn *conn, const char *sql)
{
	PGresult   *result = query(conn, sql);
	double		number = atof(PQgetvalue(result, 0, 0));

	PQclear(result);
	return number;
}

/* The value of an option --name=number, or the default. */
static inline long
option(int argc, char **argv, const char *name, long otherwise)
{
	size_t		length = strlen(name);

	for (int i = 2; i < argc; i++)
		if (strncmp(argv[i], "--", 2) == 0 && strncmp(argv[i] + 2, name, length) == 0 && argv[i][2 + length] == '=')
			return argv[i][3 + length] == '\0' ? otherwise : atol(argv[i] + 3 + length);
	return otherwise;
}

#endif
