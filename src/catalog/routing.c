/*
 * routing.c
 *		Routing: the queue that the rules of set_routing() give a worker.
 *
 * The registry asks once for every definition that it reads: whatever enqueues, deduplicates or heals finds
 * the routed queue in the Worker, and no rule is evaluated when a job is enqueued.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "arguments.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "routing.h"
#include "selector.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

typedef struct RoutingRule
{
	Selector   *selector;
	char	   *queue;			/* NULL: the worker's own */
} RoutingRule;

/* The element of a JSON array as a string; NULL if it is none, with *null telling whether it is null. */
static char *
string_element(JsonbContainer *array, int i, bool *null)
{
	JsonbValue *value = getIthJsonbValueFromContainer(array, i);

	*null = value != NULL && value->type == jbvNull;
	if (value == NULL || value->type != jbvString)
		return NULL;
	return pnstrdup(value->val.string.val, value->val.string.len);
}

/* The two parts of a rule, unchecked; false if it is not made of two. */
static bool
rule_parts(JsonbValue *rule, char **selector, char **queue)
{
	JsonbContainer *array;
	bool		no_selector;
	bool		no_queue;

	if (rule->type != jbvBinary || !JsonContainerIsArray(rule->val.binary.data))
		return false;
	array = rule->val.binary.data;
	if (JsonContainerSize(array) != 2)
		return false;
	*selector = string_element(array, 0, &no_selector);
	*queue = string_element(array, 1, &no_queue);
	if (*selector == NULL || (*queue == NULL && !no_queue))
		return false;
	if (*queue != NULL && (*queue)[0] == '\0')
		*queue = NULL;
	return true;
}

/*
 * Reads the stored rules. Those that set_routing() let in are good. A rule that SQL has written past it is
 * left out, so that it does not stop the queue.
 */
static List *
stored_rules(HeapTuple tuple, TupleDesc descriptor)
{
	bool		isnull;
	Jsonb	   *rules = DatumGetJsonbP(heap_getattr(tuple, Anum_routing_rules, descriptor, &isnull));
	List	   *list = NIL;

	if (!JB_ROOT_IS_ARRAY(rules) || JB_ROOT_IS_SCALAR(rules))
		return NIL;
	for (uint32 i = 0; i < JsonContainerSize(&rules->root); i++)
	{
		RoutingRule *rule = palloc(sizeof(RoutingRule));
		SelectorError error;
		char	   *selector;

		if (rule_parts(getIthJsonbValueFromContainer(&rules->root, i), &selector, &rule->queue) &&
			(rule->selector = selector_parse(selector, &error)) != NULL)
			list = lappend(list, rule);
	}
	return list;
}

RowVersion
routing_read(Snapshot snapshot, List **rules)
{
	TableRows	rows;
	RowVersion	row = {0};

	table_rows_begin(&rows, REL_ROUTING, snapshot);
	if (table_rows_next(&rows))
	{
		row = row_version(rows.tuple);
		if (rules != NULL)
			*rules = stored_rules(rows.tuple, RelationGetDescr(rows.rel));
	}
	table_rows_end(&rows);
	return row;
}

char *
routing_queue(List *rules, Worker *worker)
{
	ListCell   *cell;

	foreach(cell, rules)
	{
		const RoutingRule *rule = lfirst(cell);

		if (selector_matches(rule->selector, worker, worker->queue))
			return rule->queue ? rule->queue : worker->queue;
	}
	return worker->queue;
}

void
routing_check(Jsonb *rules)
{
	if (!JB_ROOT_IS_ARRAY(rules) || JB_ROOT_IS_SCALAR(rules))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("routing rules must be a JSON array"),
				 errdetail("What is given is of type %s.",
						   text_to_cstring(
							   DatumGetTextPP(DirectFunctionCall1(jsonb_typeof, JsonbPGetDatum(rules))))),
				 errhint("Give an array such as [[\"urgency=high\", \"fast\"], [\"*\", \"\"]].")));
	for (uint32 i = 0; i < JsonContainerSize(&rules->root); i++)
	{
		char	   *selector;
		char	   *queue;

		if (!rule_parts(getIthJsonbValueFromContainer(&rules->root, i), &selector, &queue))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("routing rule %u is malformed", i + 1),
					 errdetail("A rule is an array of two: a selector, and the name of a queue."),
					 errhint("Write it as [\"urgency=high\", \"fast\"]; \"\" or null keeps the worker's own queue.")));
		(void) selector_require(selector, psprintf("routing rule %u", i + 1));
		if (queue != NULL)
			check_name("queue", queue);
	}
}
