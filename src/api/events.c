/*
 * events.c
 *		subscribe(), unsubscribe(), publish(): an event becomes a job of each subscriber.
 *
 * A subscriber is a worker and the role that subscribed it. That role owns the jobs, so that no function runs
 * as a publisher who did not choose it, and has the right to enqueue them, or gets none. A subscriber whose
 * subscriptions match by more than one pattern has one job.
 *
 * No subscription makes a publish fail. All jobs of an event are enqueued in one subtransaction; if that
 * fails, each is enqueued in one of its own, and the log says which subscriber gets none, and why. A worker
 * that was dropped gets its jobs when it is back: they wait.
 *
 * With dedup_key, the jobs of an event are noted under a token of the publisher's, as run_once() notes a
 * result. A later publish of that key finds them there, and enqueues only for those who subscribed since.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "arguments.h"
#include "attribute_numbers.h"
#include "call.h"
#include "catalog.h"
#include "catalog/pg_type.h"
#include "encrypted_job.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "idempotency.h"
#include "miscadmin.h"
#include "new_job.h"
#include "run_as.h"
#include "subscription.h"
#include "subtransaction.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(queue_jobs_subscribe);
PG_FUNCTION_INFO_V1(queue_jobs_unsubscribe);
PG_FUNCTION_INFO_V1(queue_jobs_publish);

#define KEPT_FOR USECS_PER_DAY	/* the token of a dedup_key */
#define MOST_OF_FILTER 10000	/* bytes: each session that publishes has all filters in memory */
#define MOST_OF_ROLE 2000		/* subscriptions: each publish looks at all of them */

/* A row of event_subscriber. */
typedef struct Subscription
{
	char	   *event;			/* a name; or a prefix of names, if "any" */
	bool		any;
	char	   *worker;
	Oid			owner;
	Jsonb	   *filter;			/* or NULL */
} Subscription;

/* An event under way. */
typedef struct Event
{
	const char *name;
	Jsonb	   *payload;
	Jsonb	   *args;
	Jsonb	   *context;
	TimestampTz now;
	TimestampTz run_at;
	List	   *subscriptions;	/* that match by name, those of a subscriber together */
	Jsonb	   *known;			/* the jobs of a publish before, by subscriber; or NULL */
	QjJsonbState made;			/* those of this one, likewise */
	List	   *ids;			/* of both, int64 * */
	bool		any_made;
	const Subscription *served; /* the last that has its job */
	const Subscription *one;	/* the only one that is tried; NULL: all are */
} Event;

/* ---- subscriptions ---- */

/* Cuts "*" off a pattern. False if it is a name. */
static bool
cut_pattern(char *pattern)
{
	size_t		length = strlen(pattern);

	if (strcmp(pattern, "*") != 0 && (length < 3 || strcmp(pattern + length - 2, ".*") != 0))
		return false;
	pattern[length - 1] = '\0';
	return true;
}

/* Makes a Subscription of a row. */
static void *
read_subscription_row(HeapTuple tuple, TupleDesc desc)
{
	Subscription *subscription = palloc0(sizeof(Subscription));
	bool		isnull;
	Datum		value;

	value = heap_getattr(tuple, Anum_event_subscriber_event, desc, &isnull);
	subscription->event = TextDatumGetCString(value);
	subscription->any = cut_pattern(subscription->event);
	value = heap_getattr(tuple, Anum_event_subscriber_worker, desc, &isnull);
	subscription->worker = TextDatumGetCString(value);
	value = heap_getattr(tuple, Anum_event_subscriber_owner, desc, &isnull);
	subscription->owner = DatumGetObjectId(value);
	value = heap_getattr(tuple, Anum_event_subscriber_filter, desc, &isnull);
	subscription->filter = isnull ? NULL : DatumGetJsonbPCopy(value);
	return subscription;
}

static SmallTable subscriptions = {.relation = REL_EVENT_SUBSCRIBER, .read_row = read_subscription_row};

/* The order of subscribers; 0 for two subscriptions of one. */
static int
compare_subscribers(const Subscription *a, const Subscription *b)
{
	int			order = strcmp(a->worker, b->worker);

	return order != 0 ? order : (a->owner > b->owner) - (a->owner < b->owner);
}

/* Compares two subscriptions of a list. */
static int
by_subscriber(const ListCell *a, const ListCell *b)
{
	return compare_subscribers(lfirst(a), lfirst(b));
}

/* Returns copies of those that match the event by name: they outlast what is read again meanwhile. */
static List *
subscriptions_of(const char *event)
{
	List	   *found = NIL;
	ListCell   *cell;

	if (small_table_refresh(&subscriptions))
		list_sort(subscriptions.rows, by_subscriber);
	foreach(cell, subscriptions.rows)
	{
		const Subscription *row = lfirst(cell);
		Subscription *copy;

		if (row->any ? strncmp(event, row->event, strlen(row->event)) != 0 : strcmp(event, row->event) != 0)
			continue;
		copy = palloc(sizeof(Subscription));
		*copy = *row;
		copy->event = pstrdup(row->event);
		copy->worker = pstrdup(registry_present_name(row->worker));
		if (row->filter != NULL)
			copy->filter = DatumGetJsonbPCopy(JsonbPGetDatum(row->filter));
		found = lappend(found, copy);
	}
	return found;
}

/* ---- delivery ---- */

/* Returns the whole value, as one to be put into another. */
static JsonbValue
root_value(Jsonb *json)
{
	JsonbValue	value;

	if (!JB_ROOT_IS_SCALAR(json) || !JsonbExtractScalar(&json->root, &value))
		JsonbToJsonbValue(json, &value);
	return value;
}

/* Makes the args of an event's jobs. */
static Jsonb *
event_args(const char *event, Jsonb *payload)
{
	QjJsonbState state = {0};
	JsonbValue	name = jsonb_string(event);
	JsonbValue	value = root_value(payload);

	QjPushJsonb(&state, WJB_BEGIN_OBJECT, NULL);
	jsonb_push_member(&state, "event", &name);
	jsonb_push_member(&state, "payload", &value);
	QjPushJsonb(&state, WJB_END_OBJECT, NULL);
	return JsonbValueToJsonb(state.result);
}

/*
 * Returns the worker as its jobs are to be stored. While it is gone, no session knows what it encrypts: then
 * that is all.
 */
static Worker *
subscribed_worker(const char *name)
{
	Worker	   *worker = registry_worker_copy(name);

	if (worker != NULL)
		return worker;
	worker = registry_default_worker(pstrdup(name), pstrdup(name));
	if (encryption_possible())
		worker->encrypt = ALL_KEYS;
	return worker;
}

/* Enqueues the event's job as the subscriber; 0 if there is none. The current memory context is kept. */
static int64
enqueue_event(const Event *event, const Subscription *subscription)
{
	MemoryContext context = CurrentMemoryContext;
	int64		id = 0;
	RunAs		saved;

	restricted_begin(&saved, subscription->owner, BARE_SEARCH_PATH);
	if (!registry_worker_disabled(subscription->worker))
	{
		Worker	   *worker = subscribed_worker(subscription->worker);
		EnqueueCall call;
		LiveTable	table;
		bool		duplicate;

		enqueue_check_right(worker);
		new_job_begin(&call, subscription->owner, worker, worker->queue, event->now, 0);
		call.job.run_at = event->run_at;
		call.job.context = inherited_context(call.worker, event->context);
		live_open(&table);
		id = new_job_add(&call, &table, event->args, NULL, &duplicate);
		live_close(&table);
	}
	restricted_end(&saved);
	MemoryContextSwitchTo(context);
	return id;
}

/* Whether the payload contains what the subscription asks for. */
static bool
payload_matches(const Event *event, const Subscription *subscription)
{
	return subscription->filter == NULL ||
		DatumGetBool(DirectFunctionCall2(jsonb_contains, JsonbPGetDatum(event->payload),
										 JsonbPGetDatum(subscription->filter)));
}

/* Returns the subscriber's key among the jobs of a token: names, as OIDs change when a dump is restored. */
static char *
subscriber_key(const Subscription *subscription)
{
	return psprintf("%s %s", quote_identifier(subscription->worker),
					quote_identifier(GetUserNameFromId(subscription->owner, false)));
}

/* Notes the job that was made for a subscriber, for the token. */
static void
note_made(Event *event, const char *key, int64 id)
{
	JsonbValue	number = {.type = jbvNumeric, .val.numeric = int64_to_numeric(id)};

	if (!event->any_made)
		QjPushJsonb(&event->made, WJB_BEGIN_OBJECT, NULL);
	event->any_made = true;
	jsonb_push_member(&event->made, key, &number);
}

/* Gives the subscriber its job, unless another of its subscriptions has, or none matches. */
static void
deliver(Event *event, const Subscription *subscription)
{
	char	   *key;
	int64	   *id;

	if (event->served != NULL && compare_subscribers(event->served, subscription) == 0)
		return;
	if (!payload_matches(event, subscription) || GetUserNameFromId(subscription->owner, true) == NULL)
		return;
	key = subscriber_key(subscription);
	id = palloc(sizeof(int64));
	*id = event->known ? jsonb_member_number(&event->known->root, key, 0) : 0;
	if (*id == 0)
	{
		*id = enqueue_event(event, subscription);
		if (*id == 0)
			return;
		note_made(event, key, *id);
	}
	event->ids = lappend(event->ids, id);
	event->served = subscription;
}

/* Gives all subscribers their jobs. */
static void
deliver_to_all(void *argument)
{
	Event	   *event = argument;
	ListCell   *cell;

	foreach(cell, event->subscriptions)
	{
		CHECK_FOR_INTERRUPTS();
		deliver(event, lfirst(cell));
	}
}

/* Gives the subscriber whose turn it is its job. */
static void
deliver_to_one(void *argument)
{
	Event	   *event = argument;

	deliver(event, event->one);
}

/* Says in the log whose delivery failed. */
static void
delivery_callback(void *argument)
{
	const Event *event = argument;

	if (event->one != NULL)
		errcontext("event \"%s\" for worker \"%s\" of role \"%s\"", event->name, event->one->worker,
				   GetUserNameFromId(event->one->owner, true));
}

/* Tries a subtransaction. Returns an error that is a subscriber's own, or NULL. */
static ErrorData *
try_to_deliver(void (*function) (void *), Event *event)
{
	ErrorData  *error = subtransaction_try(function, event);

	if (error != NULL && error_is_servers_own(error))
		ReThrowError(error);
	return error;
}

/* Gives those their jobs who can have them, and logs why others cannot. */
static void
deliver_one_by_one(Event *event)
{
	ErrorContextCallback callback = {
		.callback = delivery_callback, .arg = event, .previous = error_context_stack
	};
	ListCell   *cell;

	event->ids = NIL;
	event->served = NULL;
	event->made = (QjJsonbState) {0};
	event->any_made = false;
	foreach(cell, event->subscriptions)
	{
		ErrorData  *error;

		event->one = lfirst(cell);
		error_context_stack = &callback;
		error = try_to_deliver(deliver_to_one, event);
		error_context_stack = callback.previous;
		if (error == NULL)
			continue;
		report_error(error);
		event->served = event->one; /* by none of its subscriptions */
	}
}

/* ---- publish() ---- */

/* Returns when the jobs are due. */
static TimestampTz
run_at_after_delay(FunctionCallInfo fcinfo, TimestampTz now)
{
	Interval   *delay;

	if (PG_ARGISNULL(Arg_publish_delay))
		return now;
	delay = future_interval(PG_GETARG_INTERVAL_P(Arg_publish_delay), "delay");
	return DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval, TimestampTzGetDatum(now),
												   IntervalPGetDatum(delay)));
}

/* The token under which the event's jobs are noted; NULL: there is no dedup_key. */
static char *
event_token(FunctionCallInfo fcinfo, const char *event)
{
	char	   *key = text_argument(fcinfo, Arg_publish_dedup_key);

	if (key == NULL)
		return NULL;
	token_check(key, "dedup_key");
	return psprintf(OWN_TOKEN "publish %zu %s %s", strlen(event), event, key);
}

/* Stores the jobs under the token, with those that were made before. */
static void
store_made(Event *event, const char *token)
{
	Jsonb	   *made;

	QjPushJsonb(&event->made, WJB_END_OBJECT, NULL);
	made = JsonbValueToJsonb(event->made.result);
	if (event->known != NULL)
		made = DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(event->known),
												  JsonbPGetDatum(made)));
	token_store(token, made, event->now + KEPT_FOR);
}

/* publish(event, payload, delay, dedup_key): the ids of the jobs that subscribers have of it. */
Datum
queue_jobs_publish(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Event		event = {.now = job_now()};
	char	   *token;
	ListCell   *cell;

	refuse_where_nothing_can_be_written("queue_jobs.publish()");
	event.name = name_argument(fcinfo, Arg_publish_event, "event", "event");
	refuse_null(fcinfo, Arg_publish_payload, "payload");
	event.payload = PG_GETARG_JSONB_P(Arg_publish_payload);
	event.run_at = run_at_after_delay(fcinfo, event.now);
	token = event_token(fcinfo, event.name);
	event.context = enqueue_context();
	event.args = event_args(event.name, event.payload);
	(void) storable_args(event.args);	/* checks them, also for an event without subscribers */
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	event.subscriptions = subscriptions_of(event.name);
	if (event.subscriptions == NIL)
		return (Datum) 0;
	if (token != NULL)
	{
		token_lock(token);
		(void) token_find(token, &event.known);
	}
	if (try_to_deliver(deliver_to_all, &event) != NULL)
		deliver_one_by_one(&event);
	if (token != NULL && event.any_made)
		store_made(&event, token);
	foreach(cell, event.ids)
	{
		Datum		id = Int64GetDatum(*(int64 *) lfirst(cell));
		bool		isnull = false;

		tuplestore_putvalues(result->setResult, result->setDesc, &id, &isnull);
	}
	return (Datum) 0;
}

/* ---- subscribe(), unsubscribe() ---- */

/* ERROR unless an event may be subscribed by that. */
static void
check_pattern(const char *pattern)
{
	char	   *prefix = pstrdup(pattern);
	size_t		length;

	if (!cut_pattern(prefix))
	{
		check_name("event", pattern);
		return;
	}
	length = strlen(prefix);
	if (length == 0)
		return;					/* all events */
	prefix[length - 1] = '\0';
	check_name("event", prefix);
}

/* ERROR if the filter is too large, or not one that may be stored. */
static void
check_filter(Jsonb *filter)
{
	int			size = (int) VARSIZE_ANY_EXHDR(filter);

	jsonb_check_text(filter, "filter");
	if (size > MOST_OF_FILTER)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("filter is too large"),
				 errdetail("It has %d bytes; at most %d are allowed.", size, MOST_OF_FILTER),
				 errhint("Let the worker look at the rest of the payload.")));
}

/* ERROR if the current user has as many subscriptions as a role may have. */
static void
check_number(void)
{
	Oid			types[] = {REGROLEOID};
	Datum		values[] = {ObjectIdGetDatum(GetUserId())};

	if (!superuser() &&
		engine_statement("SELECT FROM queue_jobs.event_subscriber WHERE owner = $1", SPI_OK_SELECT,
						 lengthof(types), types, values, NULL) > MOST_OF_ROLE)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("role \"%s\" has too many subscriptions", GetUserNameFromId(GetUserId(), true)),
				 errdetail("At most %d are allowed.", MOST_OF_ROLE),
				 errhint("Subscribe workers to patterns, as \"order.*\", or one worker that calls others.")));
}

/* Returns the worker of that name, which must be a user's. */
static Worker *
worker_to_subscribe(const char *name)
{
	Worker	   *worker = worker_copy(registry_require_worker(name, UNDEFINED_WORKER_HINT));

	if (worker->built_in != BUILT_IN_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("worker \"%s\" cannot subscribe to events", name),
				 errdetail("It is one of the engine's own."),
				 errhint("Define a worker with a handler.")));
	return worker;
}

/*
 * subscribe(event, worker, filter): from the commit on, each such event is a job of the worker, owned by the
 * current user.
 */
Datum
queue_jobs_subscribe(PG_FUNCTION_ARGS)
{
	Oid			types[] = {TEXTOID, TEXTOID, REGROLEOID, JSONBOID};
	Datum		values[lengthof(types)];
	char		nulls[] = "    ";
	char	   *event;
	char	   *worker;

	refuse_where_nothing_can_be_written("queue_jobs.subscribe()");
	refuse_null(fcinfo, Arg_subscribe_event, "event");
	event = text_argument(fcinfo, Arg_subscribe_event);
	check_pattern(event);
	refuse_null(fcinfo, Arg_subscribe_worker, "worker");
	worker = registry_present_name(text_argument(fcinfo, Arg_subscribe_worker));
	values[0] = CStringGetTextDatum(event);
	values[1] = CStringGetTextDatum(worker);
	values[2] = ObjectIdGetDatum(GetUserId());
	values[3] = (Datum) 0;
	if (PG_ARGISNULL(Arg_subscribe_filter))
		nulls[3] = 'n';
	else
	{
		check_filter(PG_GETARG_JSONB_P(Arg_subscribe_filter));
		values[3] = PG_GETARG_DATUM(Arg_subscribe_filter);
	}
	/* the subscriber hears now of what enqueue() would refuse, and not the log at each publish */
	enqueue_prepare(worker_to_subscribe(worker), event_args(event, jsonb_parse("{}")));
	engine_statement("INSERT INTO queue_jobs.event_subscriber (event, worker, owner, filter) VALUES ($1, $2, $3, $4)"
					 " ON CONFLICT (event, worker, owner) DO UPDATE SET filter = EXCLUDED.filter",
					 SPI_OK_INSERT, lengthof(types), types, values, nulls);
	check_number();
	catalog_announce_change();
	PG_RETURN_VOID();
}

/* ERROR for a subscription that is not there, or is another role's. */
static void
refuse_to_unsubscribe(const char *event, const char *worker, bool exists)
{
	if (exists)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for the subscription of worker \"%s\" to event \"%s\"", worker, event),
				 errdetail("Another role has subscribed it."),
				 errhint("Become a member of that role.")));
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("worker \"%s\" is not subscribed to event \"%s\"", shown_text(worker), shown_text(event)),
			 errdetail("A subscription is dropped by the event and the worker with which it was made."),
			 errhint("See the view queue_jobs.event_subscription.")));
}

/* Returns all names of the worker that has, or had, that one, as an array. */
static Datum
all_names(char *name)
{
	const Worker *worker = registry_worker(name);
	List	   *names = worker == NULL ? list_make1(name) : worker_all_names(worker);
	Datum	   *elements = palloc(sizeof(Datum) * list_length(names));

	for (int i = 0; i < list_length(names); i++)
		elements[i] = CStringGetTextDatum(list_nth(names, i));
	return PointerGetDatum(construct_array(elements, list_length(names), TEXTOID, -1, false, TYPALIGN_INT));
}

/*
 * unsubscribe(event, worker): drops the current user's subscription; if it has none, those of roles whose
 * rights it has.
 */
Datum
queue_jobs_unsubscribe(PG_FUNCTION_ARGS)
{
	Oid			types[] = {TEXTOID, TEXTARRAYOID, REGROLEOID};
	Datum		values[lengthof(types)];
	char	   *event;
	char	   *worker;

	refuse_where_nothing_can_be_written("queue_jobs.unsubscribe()");
	refuse_null(fcinfo, Arg_unsubscribe_event, "event");
	refuse_null(fcinfo, Arg_unsubscribe_worker, "worker");
	event = text_argument(fcinfo, Arg_unsubscribe_event);
	worker = text_argument(fcinfo, Arg_unsubscribe_worker);
	values[0] = CStringGetTextDatum(event);
	values[1] = all_names(worker);
	values[2] = ObjectIdGetDatum(GetUserId());
	if (engine_statement("DELETE FROM queue_jobs.event_subscriber WHERE event = $1 AND worker = ANY ($2) AND owner = $3",
						 SPI_OK_DELETE, lengthof(types), types, values, NULL) == 0 &&
		engine_statement("DELETE FROM queue_jobs.event_subscriber WHERE event = $1 AND worker = ANY ($2)"
						 " AND pg_has_role($3::oid, owner, 'USAGE')",
						 SPI_OK_DELETE, lengthof(types), types, values, NULL) == 0)
		refuse_to_unsubscribe(event, worker,
							  engine_statement("SELECT FROM queue_jobs.event_subscriber WHERE event = $1 AND worker = ANY ($2)",
											   SPI_OK_SELECT, 2, types, values, NULL) > 0);
	catalog_announce_change();
	PG_RETURN_VOID();
}
