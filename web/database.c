/*
 * database.c
 *		Connections as one role, and queries by them.
 *
 * A connection is used by one thread at a time. All are read only but while they act, with limits
 * on the time that a statement takes and waits for locks. A connection that was lost is made again
 * once; a statement that changes something is never sent twice.
 */
#include "database.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buffer.h"
#include "cache.h"
#include "options.h"

#define PROGRAM_CONNECTIONS 4
#define CONNECTION_WAIT 10		/* seconds until a request gives up waiting for a connection */

struct Viewer
{
	pthread_mutex_t lock;
	pthread_cond_t freed;
	PGconn	   *idle[PROGRAM_CONNECTIONS];
	int			idle_count;
	int			open_count;
	int			max_count;
	char	   *role;			/* NULL until the program's role is known */
	char	   *database;
};

static const char session_settings[] =
	"SET statement_timeout = '5s'; SET lock_timeout = '2s'; SET idle_in_transaction_session_timeout = '10s'; "
	"SET search_path = pg_catalog; SET timezone = 'UTC'; SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; SET default_transaction_read_only = on";

/* Actions on all jobs that match may take long. */
static const char action_begin[] = "BEGIN READ WRITE; SET LOCAL statement_timeout = '60s'";

static void
ignore_notice(void *arg, const PGresult *notice)
{
	(void) arg;
	(void) notice;
}

static void
collect_notice(void *arg, const PGresult *notice)
{
	const char *message = PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY);

	add((Buffer *) arg, "%r%r", ((Buffer *) arg)->length > 0 ? "\n" : "", message ? message : "");
}

/* Connects; what the command line says goes over our defaults, and the role that signs in over both. */
static PGconn *
connect_as(const char *role, const char *password)
{
	const char *keywords[] = {"fallback_application_name", "connect_timeout", "tcp_user_timeout", "dbname", "client_encoding",
	role ? "user" : NULL, "password", NULL};
	const char *values[] = {"queue_jobs_web", "5", "10000", options.conninfo, "UTF8", role, password, NULL};
	PGconn	   *connection = PQconnectdbParams(keywords, values, 1);

	PQsetNoticeReceiver(connection, ignore_notice, NULL);
	return connection;
}

static bool
prepare_connection(PGconn *connection)
{
	PGresult   *result;
	bool		ok;

	if (PQstatus(connection) != CONNECTION_OK)
		return false;
	result = PQexec(connection, session_settings);
	ok = PQresultStatus(result) == PGRES_COMMAND_OK;
	PQclear(result);
	return ok;
}

static Viewer *
viewer_new(int max_count)
{
	Viewer	   *viewer = allocate(sizeof(Viewer));

	pthread_mutex_init(&viewer->lock, NULL);
	pthread_cond_init(&viewer->freed, NULL);
	viewer->max_count = max_count;
	return viewer;
}

Viewer *
viewer_of_program(void)
{
	static Viewer *viewer;

	/* First called before there are threads. */
	if (viewer == NULL)
		viewer = viewer_new(PROGRAM_CONNECTIONS);
	return viewer;
}

/*
 * A server that asks for no password, or takes the program's own certificate or ticket, would let
 * anyone in as any role: that is no sign-in. Returns why this connection is none, or NULL.
 */
static char *
sign_in_problem(PGconn *connection)
{
	if (!prepare_connection(connection))
		return copy_text(PQerrorMessage(connection));
	if (!PQconnectionUsedPassword(connection))
		return copy_text("The server asks this role for no password, so anyone could sign in as it. "
						 "pg_hba.conf has to say scram-sha-256 for connections of queue_jobs_web.");
	return NULL;
}

Viewer *
viewer_sign_in(const char *role, const char *password, char **problem)
{
	PGconn	   *connection = connect_as(role, password);
	Viewer	   *viewer;

	*problem = sign_in_problem(connection);
	if (*problem)
	{
		PQfinish(connection);
		return NULL;
	}
	viewer = viewer_new(1);
	viewer->role = copy_text(PQuser(connection));
	viewer->database = copy_text(PQdb(connection));
	viewer->idle[viewer->idle_count++] = connection;
	viewer->open_count = 1;
	return viewer;
}

/* No viewer uses it any more: the session's last reference is gone. */
void
viewer_close(Viewer *viewer)
{
	for (int i = 0; i < viewer->idle_count; i++)
		PQfinish(viewer->idle[i]);
	pthread_mutex_destroy(&viewer->lock);
	pthread_cond_destroy(&viewer->freed);
	free(viewer->role);
	free(viewer->database);
	free(viewer);
}

static const char *
locked_copy(Viewer *viewer, char **field)
{
	const char *value;

	pthread_mutex_lock(&viewer->lock);
	value = *field ? *field : "";
	pthread_mutex_unlock(&viewer->lock);
	return value;
}

/* Set once and never changed, so that the pointers stay good. */
const char *
viewer_role(Viewer *viewer)
{
	return locked_copy(viewer, &viewer->role);
}

const char *
viewer_database(Viewer *viewer)
{
	return locked_copy(viewer, &viewer->database);
}

static void
remember_names(Viewer *viewer, PGconn *connection)
{
	pthread_mutex_lock(&viewer->lock);
	if (viewer->role == NULL && PQstatus(connection) == CONNECTION_OK)
	{
		viewer->role = copy_text(PQuser(connection));
		viewer->database = copy_text(PQdb(connection));
	}
	pthread_mutex_unlock(&viewer->lock);
}

/* A connection for this thread alone, or NULL if all are in use for too long. */
static PGconn *
take_connection(Viewer *viewer)
{
	PGconn	   *connection = NULL;
	struct timespec until;
	bool		fresh = false;
	int			waited = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += CONNECTION_WAIT;
	pthread_mutex_lock(&viewer->lock);
	while (viewer->idle_count == 0 && viewer->open_count == viewer->max_count && waited == 0)
		waited = pthread_cond_timedwait(&viewer->freed, &viewer->lock, &until);
	if (viewer->idle_count > 0)
		connection = viewer->idle[--viewer->idle_count];
	else if (viewer->open_count < viewer->max_count)
	{
		viewer->open_count++;
		fresh = true;
	}
	pthread_mutex_unlock(&viewer->lock);

	if (fresh)
	{
		connection = connect_as(NULL, NULL);
		prepare_connection(connection);
		remember_names(viewer, connection);
	}
	return connection;
}

static void
give_back(Viewer *viewer, PGconn *connection)
{
	PQsetNoticeReceiver(connection, ignore_notice, NULL);
	pthread_mutex_lock(&viewer->lock);
	viewer->idle[viewer->idle_count++] = connection;
	pthread_cond_signal(&viewer->freed);
	pthread_mutex_unlock(&viewer->lock);
}

static void
reconnect(PGconn *connection)
{
	PQreset(connection);
	prepare_connection(connection);
}

Answer *
answer_error(const char *sqlstate, const char *message)
{
	Answer	   *answer = allocate(sizeof(Answer));

	answer->references = 1;
	snprintf(answer->sqlstate, sizeof(answer->sqlstate), "%s", sqlstate);
	answer->message = copy_text(message);
	return answer;
}

static Answer *
answer_of(PGconn *connection, PGresult *result)
{
	Answer	   *answer;
	const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	if (PQresultStatus(result) == PGRES_TUPLES_OK || PQresultStatus(result) == PGRES_COMMAND_OK)
	{
		answer = allocate(sizeof(Answer));
		answer->references = 1;
		answer->result = result;
		return answer;
	}
	answer = answer_error(sqlstate ? sqlstate : "08006", message ? message : PQerrorMessage(connection));
	answer->detail = copy_text(PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL));
	answer->hint = copy_text(PQresultErrorField(result, PG_DIAG_MESSAGE_HINT));
	PQclear(result);
	return answer;
}

static Answer *
no_connection(void)
{
	return answer_error("53300", "All connections of this role are in use. Please try again.");
}

static Answer *
run_query(Viewer *viewer, const char *sql, int count, const char *const *values)
{
	PGconn	   *connection = take_connection(viewer);
	PGresult   *result;
	Answer	   *answer;

	if (connection == NULL)
		return no_connection();
	if (PQstatus(connection) != CONNECTION_OK)
		reconnect(connection);
	result = PQexecParams(connection, sql, count, NULL, values, NULL, NULL, 0);
	if (PQstatus(connection) != CONNECTION_OK)
	{
		PQclear(result);
		reconnect(connection);
		result = PQexecParams(connection, sql, count, NULL, values, NULL, NULL, 0);
	}
	answer = answer_of(connection, result);
	remember_names(viewer, connection);
	give_back(viewer, connection);
	return answer;
}

Answer *
ask(Viewer *viewer, const char *sql, int count, const char *const *values)
{
	Answer	   *answer;
	Cached	   *place = cache_find(viewer_role(viewer), sql, count, values, &answer);

	if (answer)
		return answer;
	answer = run_query(viewer, sql, count, values);
	cache_fill(place, answer);
	return answer;
}

static bool
succeeds(PGconn *connection, const char *sql)
{
	PGresult   *result = PQexec(connection, sql);
	bool		ok = PQresultStatus(result) == PGRES_COMMAND_OK;

	PQclear(result);
	return ok;
}

/* Within the transaction that the caller has begun. */
static Answer *
run_action(PGconn *connection, const char *sql, int count, const char *const *values)
{
	Answer	   *answer = answer_of(connection, PQexecParams(connection, sql, count, NULL, values, NULL, NULL, 0));
	Answer	   *commit;

	if (answer->result == NULL)
	{
		succeeds(connection, "ROLLBACK");
		return answer;
	}
	commit = answer_of(connection, PQexec(connection, "COMMIT"));
	if (commit->result)
	{
		answer_release(commit);
		return answer;
	}
	answer_release(answer);
	return commit;
}

Answer *
act(Viewer *viewer, const char *sql, int count, const char *const *values)
{
	PGconn	   *connection = take_connection(viewer);
	Answer	   *answer;
	Buffer		notices;

	if (connection == NULL)
		return no_connection();
	buffer_init(&notices);
	if (!succeeds(connection, action_begin) && PQstatus(connection) != CONNECTION_OK)
	{
		reconnect(connection);
		succeeds(connection, action_begin);
	}
	PQsetNoticeReceiver(connection, collect_notice, &notices);
	if (PQtransactionStatus(connection) == PQTRANS_INTRANS)
		answer = run_action(connection, sql, count, values);
	else
		answer = answer_error("08006", PQerrorMessage(connection));
	give_back(viewer, connection);
	answer->notices = notices.length > 0 ? copy_text(notices.data) : NULL;
	buffer_free(&notices);
	cache_forget();
	return answer;
}
