/*
 * replica_connection.c
 *		Connections to replicas, by libpq.
 *
 * A connection is kept for as long as its process lives and the replica is on the list, as it was. One that
 * broke while it was not used is renewed at once: that is no failure of the replica. Every wait has an end.
 *
 * The replica identifies itself over the connection that is then read from: a name can lead to another server
 * today than yesterday. Since it only ever replays more, what it has replayed when asked is
 * there when the read begins.
 *
 * Failures are of two kinds. A replica that cannot be reached, does not answer, or is no replica of ours, is
 * of no use to any process: all leave it alone for a while (replica.h). One that refuses us may do so for our
 * role's sake only: that is for this process to remember.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "compat.h"
#include "job.h"
#include "libpq-fe.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "replica_connection.h"
#include "settings.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/pg_lsn.h"
#include "utils/wait_event.h"

/*
 * Read-only, should the replica be promoted while we read. The others prevail over settings of the role and
 * of the database, which are replicated: by those the session could begin as another role or in an isolation
 * level that a standby does not have, or end while it is idle. A read that we no longer wait for ends by its
 * statement_timeout, which is set with each question.
 */
#define SESSION_OPTIONS "-c default_transaction_read_only=on -c role=none" \
	" -c default_transaction_isolation=read\\ committed -c default_transaction_deferrable=off -c statement_timeout=0" \
	" -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 -c idle_session_timeout=0" QjNoTransactionTimeout
#define LONGEST_REST 60			/* seconds for which we don't try a replica that refused us */
#define SPARE_TIME 1000L		/* milliseconds that a statement's own timeout has to take effect */

typedef struct Link
{
	char	   *name;
	char	   *conninfo;
	PGconn	   *connection;		/* or NULL */
	bool		used;			/* it has answered before */
	bool		resetting;		/* DISCARD ALL was sent, its outcome not read yet */
	int			refusals;		/* in a row, of us */
	TimestampTz not_before;
} Link;

/* How something went. */
typedef enum Attempt
{
	ATTEMPT_DONE,
	ATTEMPT_REFUSED,			/* the server answered, with an error */
	ATTEMPT_LOST,				/* no connection (any more), or no answer in time */
} Attempt;

static uint32 wait_event = 0;	/* QjWaitEvent() */
static List *links = NIL;
static Oid	connect_as = InvalidOid;	/* role; InvalidOid: as the operator said */
static PGresult *received = NULL;	/* the outcome of the latest statement */
static char failure[1024];		/* what went wrong last */

void
replica_connect_as(Oid role)
{
	connect_as = role;
}

/* ---- connection strings ---- */

/* secrets of PostgreSQL 18's libpq are here, too */
static const char *const secrets[] = {
	"password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret", NULL
};

/* The operator's identity: no part of a connection as another role. */
static const char *const identity[] = {
	"user", "password", "scram_client_key", "scram_server_key", "oauth_client_id", "oauth_client_secret", NULL
};

/* Whether the keyword is in the list. */
static bool
in_list(const char *keyword, const char *const *list)
{
	while (*list != NULL && strcmp(keyword, *list) != 0)
		list++;
	return *list != NULL;
}

/* Parses a connection string. The values are libpq's, from malloc(). */
static PQconninfoOption *
parse_conninfo(const char *conninfo)
{
	char	   *error = NULL;
	PQconninfoOption *options = PQconninfoParse(conninfo, &error);
	char	   *message;

	if (options != NULL)
		return options;
	message = pstrdup(error ? error : "out of memory");
	PQfreemem(error);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid connection string"),
			 errdetail_internal("%s", pchomp(message)),
			 errdetail_log("What is wrong is not logged, for it might tell a password."),
			 errhint("Give it as for any client: \"host=... port=...\" or \"postgresql://...\".")));
}

/* Appends an option of a connection string. */
static void
append_option(StringInfo string, const char *keyword, const char *value)
{
	appendStringInfo(string, "%s%s='", string->len > 0 ? " " : "", keyword);
	for (const char *c = value; *c != '\0'; c++)
	{
		if (*c == '\'' || *c == '\\')
			appendStringInfoChar(string, '\\');
		appendStringInfoChar(string, *c);
	}
	appendStringInfoChar(string, '\'');
}

char *
replica_check_conninfo(const char *conninfo)
{
	PQconninfoOption *options = parse_conninfo(conninfo);
	StringInfoData shown;
	const char *refused = NULL;

	initStringInfo(&shown);
	for (PQconninfoOption *option = options; option->keyword != NULL; option++)
	{
		if (option->val == NULL || option->val[0] == '\0')
			continue;
		if (strcmp(option->keyword, "service") == 0 || strcmp(option->keyword, "replication") == 0)
			refused = option->keyword;
		if (!in_list(option->keyword, secrets))
			append_option(&shown, option->keyword, option->val);
	}
	PQconninfoFree(options);
	if (refused != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("connection parameter \"%s\" is not allowed here", refused),
				 errdetail("Executors connect as the role whose jobs they run, and leave out the string's user and password."),
				 errhint("Write host, port and the like into it.")));
	return shown.data;
}

/* ---- waiting ---- */

/* Keeps why the connection failed, on one line. */
static void
set_failure(const char *message)
{
	char	   *end;

	strlcpy(failure, message && message[0] ? message : "connection lost", sizeof(failure));
	end = failure + strlen(failure);
	while (end > failure && (end[-1] == '\n' || end[-1] == ' '))
		*--end = '\0';
}

/* False if the time is over. */
static bool
wait_for_socket(PGconn *connection, int events, TimestampTz deadline)
{
	long		milliseconds = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);
	int			happened;

	if (milliseconds <= 0)
		return false;
	happened = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | WL_TIMEOUT | events,
								 PQsocket(connection), milliseconds,
								 QjWaitEvent(&wait_event, "QueueJobsReplica"));
	if (happened & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

/* Closes the connection, if there is one. */
static void
close_link(Link *link)
{
	if (link->connection == NULL)
		return;
	PQfinish(link->connection);
	ReleaseExternalFD();
	link->connection = NULL;
	link->used = false;
	link->resetting = false;
}

/* ---- connecting ---- */

/* Ignores notices of the replica. */
static void
ignore_notice(void *arg, const PGresult *result)
{
}

#define MAX_OPTIONS 64

/* Begins to connect; false if that failed already. */
static bool
start_connection(Link *link)
{
	PQconninfoOption *options = parse_conninfo(link->conninfo);
	const char *keywords[MAX_OPTIONS + 8];
	const char *values[MAX_OPTIONS + 8];
	char	   *session = SESSION_OPTIONS;
	int			n = 0;

	/* the keywords that come later prevail */
	keywords[n] = "dbname", values[n++] = get_database_name(MyDatabaseId);
	keywords[n] = "tcp_user_timeout", values[n++] = "5000";
	keywords[n] = "keepalives_idle", values[n++] = "5";
	keywords[n] = "keepalives_interval", values[n++] = "2";
	keywords[n] = "application_name", values[n++] = "queue_jobs";
	for (PQconninfoOption *option = options; option->keyword != NULL && n < MAX_OPTIONS; option++)
	{
		if (option->val == NULL || option->val[0] == '\0' ||
			(OidIsValid(connect_as) && in_list(option->keyword, identity)))
			continue;
		if (strcmp(option->keyword, "options") == 0)
			session = psprintf("%s %s", option->val, SESSION_OPTIONS);
		keywords[n] = option->keyword, values[n++] = option->val;
	}
	if (OidIsValid(connect_as))
		keywords[n] = "user", values[n++] = GetUserNameFromId(connect_as, false);
	keywords[n] = "options", values[n++] = session;
	keywords[n] = "client_encoding", values[n++] = GetDatabaseEncodingName();
	keywords[n] = NULL, values[n] = NULL;

	if (OidIsValid(connect_as))
	{
		/* nor is the operator's password to come from elsewhere; a password file says whose it is */
		unsetenv("PGPASSWORD");
		unsetenv("PGSERVICE");
	}
	link->connection = AcquireExternalFD() ? PQconnectStartParams(keywords, values, false) : NULL;
	PQconninfoFree(options);
	if (link->connection == NULL)
	{
		set_failure("out of memory or of file descriptors");
		return false;
	}
	PQsetNoticeReceiver(link->connection, ignore_notice, NULL);
	if (PQstatus(link->connection) != CONNECTION_BAD)
		return true;
	set_failure(PQerrorMessage(link->connection));
	return false;
}

/* Connects to the replica, until the deadline. */
static Attempt
connect_link(Link *link, TimestampTz deadline)
{
	PostgresPollingStatusType status = PGRES_POLLING_WRITING;
	bool		reached = false;

	if (!start_connection(link))
		return ATTEMPT_LOST;
	while (status != PGRES_POLLING_OK)
	{
		ConnStatusType stage;

		if (!wait_for_socket(link->connection,
							 status == PGRES_POLLING_READING ? WL_SOCKET_READABLE : WL_SOCKET_WRITEABLE,
							 deadline))
		{
			set_failure("timeout while connecting");
			return ATTEMPT_LOST;
		}
		stage = PQstatus(link->connection);
		reached = reached || stage == CONNECTION_AWAITING_RESPONSE || stage == CONNECTION_AUTH_OK;
		status = PQconnectPoll(link->connection);
		if (status == PGRES_POLLING_FAILED)
		{
			set_failure(PQerrorMessage(link->connection));
			return reached ? ATTEMPT_REFUSED : ATTEMPT_LOST;
		}
	}
	return PQsetnonblocking(link->connection, 1) == 0 ? ATTEMPT_DONE : ATTEMPT_LOST;
}

/* ---- statements ---- */

/* Frees the last answer. */
static void
drop_result(void)
{
	PQclear(received);
	received = NULL;
}

/* Waits for the outcome of what was sent: it is in "received" then. */
static Attempt
await_result(Link *link, TimestampTz deadline)
{
	PGconn	   *connection = link->connection;
	bool		late = false;

	drop_result();
	for (;;)
	{
		int			unsent = PQflush(connection);

		if (unsent < 0)
			break;
		if (!PQisBusy(connection))
		{
			PGresult   *next = PQgetResult(connection);

			if (next == NULL)
				break;
			drop_result();
			received = next;
			continue;
		}
		if (!wait_for_socket(connection, WL_SOCKET_READABLE | (unsent ? WL_SOCKET_WRITEABLE : 0), deadline))
		{
			if (late)
			{
				set_failure("timeout while waiting for an answer");
				return ATTEMPT_LOST;
			}
			late = true;		/* maybe only this process: an answer that has come counts */
		}
		if (!PQconsumeInput(connection))
			break;
	}
	if (PQstatus(connection) == CONNECTION_BAD || received == NULL)
	{
		set_failure(PQerrorMessage(connection));
		return ATTEMPT_LOST;
	}
	if (PQresultStatus(received) == PGRES_TUPLES_OK || PQresultStatus(received) == PGRES_COMMAND_OK)
		return ATTEMPT_DONE;
	set_failure(PQresultErrorField(received, PG_DIAG_MESSAGE_PRIMARY));
	return ATTEMPT_REFUSED;
}

/* A statement, with parameters in text form. */
static Attempt
link_run_statement(Link *link, const char *sql, int nparams, const Oid *types, const char *const *values,
				   TimestampTz deadline)
{
	if (PQsendQueryParams(link->connection, sql, nparams, types, values, NULL, NULL, 0))
		return await_result(link, deadline);
	set_failure(PQerrorMessage(link->connection));
	return ATTEMPT_LOST;
}

/*
 * Nothing of one job is left in the session for the next. The outcome is awaited when the session is next
 * used.
 */
static void
send_reset(Link *link)
{
	link->resetting = PQsendQuery(link->connection, "DISCARD ALL") && PQflush(link->connection) >= 0;
	if (!link->resetting)
		close_link(link);
}

/* Waits for the end of the reset that followed the last job. */
static Attempt
finish_reset(Link *link, TimestampTz deadline)
{
	if (!link->resetting)
		return ATTEMPT_DONE;
	link->resetting = false;
	return await_result(link, deadline) == ATTEMPT_DONE ? ATTEMPT_DONE : ATTEMPT_LOST;
}

/* ---- links ---- */

/* Returns the link to a replica, which is made if there is none. */
static Link *
find_link(const Replica *replica)
{
	MemoryContext old;
	ListCell   *cell;
	Link	   *link;

	foreach(cell, links)
	{
		link = lfirst(cell);
		if (strcmp(link->name, replica->name) != 0)
			continue;
		if (strcmp(link->conninfo, replica->conninfo) != 0)
		{
			close_link(link);
			pfree(link->conninfo);
			link->conninfo = MemoryContextStrdup(TopMemoryContext, replica->conninfo);
			link->refusals = 0;
			link->not_before = NO_TIME;
		}
		return link;
	}
	old = MemoryContextSwitchTo(TopMemoryContext);
	link = palloc0(sizeof(Link));
	link->name = pstrdup(replica->name);
	link->conninfo = pstrdup(replica->conninfo);
	link->not_before = NO_TIME;
	links = lappend(links, link);
	MemoryContextSwitchTo(old);
	return link;
}

bool
replica_connected(void)
{
	return links != NIL;
}

/* Whether the replica is still among those of the database. */
static bool
is_listed(const Link *link, List *replicas)
{
	ListCell   *cell;

	foreach(cell, replicas)
		if (strcmp(((Replica *) lfirst(cell))->name, link->name) == 0)
			return true;
	return false;
}

void
replica_disconnect_others(List *replicas)
{
	ListCell   *cell;

	foreach(cell, links)
	{
		Link	   *link = lfirst(cell);

		if (is_listed(link, replicas))
			continue;
		close_link(link);
		links = foreach_delete_current(links, cell);
		pfree(link->name);
		pfree(link->conninfo);
		pfree(link);
	}
}

/* Closes a link that failed. "all": other processes leave the replica alone, too. */
static void
give_up(Link *link, ReplicaState state, bool all)
{
	replica_failed(link->name, state, failure, all);
	close_link(link);
	if (all)
		return;
	/* The replica would not have us; others it may. */
	link->not_before = GetCurrentTimestamp() + Min(1 << Min(link->refusals, 6), LONGEST_REST) * USECS_PER_SEC;
	link->refusals++;
}

/* ---- asking ---- */

#define ASK "SELECT p.replayed, p.timeline, p.in_recovery, p.system, p.database," \
	" (extract(epoch FROM p.lag) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8," \
	" pg_catalog.set_config('queue_jobs.context', $1, false), pg_catalog.set_config('statement_timeout', $2, false)" \
	" FROM queue_jobs.replay_position() AS p"

/* Returns what is wrong with a server that said this of itself; REPLICA_READY if nothing is. */
static ReplicaState
judge(ReplicaPosition *position)
{
	if (PQntuples(received) != 1 || PQnfields(received) < 6)
	{
		set_failure("it gave no answer that we understand");
		return REPLICA_REFUSED;
	}
	if (strtoull(PQgetvalue(received, 0, 3), NULL, 10) != GetSystemIdentifier() ||
		strtoul(PQgetvalue(received, 0, 4), NULL, 10) != MyDatabaseId)
	{
		set_failure("it is no replica of this server, or leads to another database");
		return REPLICA_FOREIGN;
	}
	if (strcmp(PQgetvalue(received, 0, 2), "t") != 0)
	{
		set_failure("it is not in recovery: promoted, or a primary");
		return REPLICA_NOT_A_STANDBY;
	}
	if (strtoul(PQgetvalue(received, 0, 1), NULL, 10) != GetWALInsertionTimeLine())
	{
		set_failure("it has not followed to this server's timeline");
		return REPLICA_OTHER_TIMELINE;
	}
	position->replayed = DatumGetLSN(
		DirectFunctionCall1(pg_lsn_in, CStringGetDatum(PQgetvalue(received, 0, 0))));
	position->lag = strtoll(PQgetvalue(received, 0, 5), NULL, 10);
	return REPLICA_READY;
}

/* Milliseconds after which the replica is to end a read by itself, so early that we hear of it. */
static int
statement_timeout(TimestampTz until)
{
	long		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);

	return (int) Min(queue_jobs_replica_read_timeout, Max(left - Min(SPARE_TIME, left / 2), 1));
}

/* Asks the replica how far it has got, and sets the session up for the job. */
static Attempt
ask(Link *link, const Jsonb *context, TimestampTz until, TimestampTz deadline)
{
	static const Oid types[] = {TEXTOID, TEXTOID};
	const char *values[2];
	Attempt		attempt = ATTEMPT_DONE;

	values[0] = context
		? JsonbToCString(NULL, unconstify(JsonbContainer *, &context->root), VARSIZE(context))
		: "";
	values[1] = psprintf("%d", statement_timeout(until));
	if (link->connection == NULL)
		attempt = connect_link(link, deadline);
	if (attempt == ATTEMPT_DONE)
		attempt = finish_reset(link, deadline);
	return attempt == ATTEMPT_DONE ? link_run_statement(link, ASK, 2, types, values, deadline) : attempt;
}

/* A connection that was fine when we used it last may have died since: then a new one is tried. */
static Attempt
ask_renewed(Link *link, const Jsonb *context, TimestampTz until)
{
	TimestampTz deadline = Min(GetCurrentTimestamp() + (int64) queue_jobs_replica_timeout * 1000, until);
	bool		used = link->used;
	Attempt		attempt = ask(link, context, until, deadline);

	if (attempt == ATTEMPT_DONE || !used)
		return attempt;
	close_link(link);
	return ask(link, context, until, deadline);
}

/*
 * A process with more time might have got an answer: that a job was in haste is for this process to remember.
 */
static bool
lost_for_all(TimestampTz until)
{
	return GetCurrentTimestamp() < until;
}

typedef struct Question
{
	const Jsonb *context;
	TimestampTz until;
	ReplicaPosition *position;
} Question;

/* Asks a replica; returns false if it cannot be used. */
static bool
ask_link(Link *link, void *argument)
{
	const Question *question = argument;
	Attempt		attempt = ask_renewed(link, question->context, question->until);
	ReplicaState state = attempt == ATTEMPT_LOST ? REPLICA_UNREACHABLE :
		attempt == ATTEMPT_REFUSED ? REPLICA_REFUSED : judge(question->position);

	if (state != REPLICA_READY)
	{
		give_up(link, state,
				attempt == ATTEMPT_LOST ? lost_for_all(question->until) : state != REPLICA_REFUSED);
		return false;
	}
	link->used = true;
	link->refusals = 0;
	replica_seen(link->name, question->position);
	return true;
}

/* Does something with a link; interrupted, it is closed, for nothing tells what is on its way. */
static bool
with_link(Link *link, bool (*function) (Link *, void *), void *argument)
{
	volatile bool done = false;

	PG_TRY();
	{
		done = function(link, argument);
	}
	PG_CATCH();
	{
		drop_result();
		close_link(link);
		PG_RE_THROW();
	}
	PG_END_TRY();
	drop_result();
	return done;
}

bool
replica_ask(const Replica *replica, const Jsonb *context, TimestampTz until, ReplicaPosition *position)
{
	Question	question = {.context = context, .until = until, .position = position};
	TimestampTz now = GetCurrentTimestamp();
	Link	   *link;

	if (now >= until || replica_left_alone(replica->name, now))
		return false;
	link = find_link(replica);
	if (link->not_before != NO_TIME && now < link->not_before &&
		link->not_before - now <= LONGEST_REST * USECS_PER_SEC)
		return false;
	return with_link(link, ask_link, &question);
}

/* ---- reading ---- */

typedef struct Read
{
	const char *sql;
	const char *args;
	TimestampTz until;
	char	   *value;			/* or NULL */
} Read;

/* Runs the read handler on a replica. */
static bool
run_read(Link *link, void *argument)
{
	static const Oid types[] = {JSONBOID};
	Read	   *read = argument;
	TimestampTz deadline = GetCurrentTimestamp() +
		((int64) queue_jobs_replica_read_timeout + SPARE_TIME) * 1000;
	Attempt		attempt = link_run_statement(link, read->sql, 1, types, &read->args,
											 Min(deadline, read->until));

	if (attempt == ATTEMPT_LOST)
	{
		give_up(link, REPLICA_UNREACHABLE, lost_for_all(read->until));
		return false;
	}
	if (attempt == ATTEMPT_REFUSED)
		replica_note_error(link->name, psprintf("a read handler failed there with SQLSTATE %s",
												PQresultErrorField(received, PG_DIAG_SQLSTATE)));
	else if (PQntuples(received) == 1 && !PQgetisnull(received, 0, 0))
		read->value = pstrdup(PQgetvalue(received, 0, 0));
	send_reset(link);
	return attempt == ATTEMPT_DONE;
}

bool
replica_read(const Replica *replica, const char *function, Jsonb *args, TimestampTz until, Jsonb **result)
{
	Link	   *link = find_link(replica);
	Read		read = {
		.sql = psprintf("SELECT %s($1)", function),
		.args = JsonbToCString(NULL, &args->root, VARSIZE(args)),
		.until = until
	};

	if (link->connection == NULL || !with_link(link, run_read, &read))
		return false;
	*result = read.value ? jsonb_parse(read.value) : NULL;
	replica_served(replica->name);
	return true;
}
