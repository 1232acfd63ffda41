/*
 * selector.c
 *		Selectors: a choice of workers and queues by their attributes.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "arguments.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "selector.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"

typedef enum SelectorAttribute
{
	SELECT_WORKER_NAME,
	SELECT_FEATURE_CATEGORY,
	SELECT_EXTERNAL_DEPENDENCIES,
	SELECT_NAME,				/* of the queue */
	SELECT_RESOURCE_BOUNDARY,
	SELECT_TAGS,
	SELECT_URGENCY,
	SELECT_QUEUE_NAMESPACE,
	SELECTOR_ATTRIBUTES
} SelectorAttribute;

static const char *const boolean_names[] = {"false", "true", NULL};

/*
 * An attribute's name in define_worker(), its name in GitLab, and the only values that make sense, if there
 * are such.
 */
static const struct
{
	const char *name;
	const char *alias;
	const char *const *values;
}			attributes[SELECTOR_ATTRIBUTES] = {
	[SELECT_WORKER_NAME] = {"worker", "worker_name", NULL},
	[SELECT_FEATURE_CATEGORY] = {"feature_category", "feature_category", NULL},
	[SELECT_EXTERNAL_DEPENDENCIES] = {"external_dependencies", "has_external_dependencies", boolean_names},
	[SELECT_NAME] = {"queue", "name", NULL},
	[SELECT_RESOURCE_BOUNDARY] = {"resource_boundary", "resource_boundary", boundary_names},
	[SELECT_TAGS] = {"tags", "tags", NULL},
	[SELECT_URGENCY] = {"urgency", "urgency", urgency_names},
	[SELECT_QUEUE_NAMESPACE] = {"namespace", "queue_namespace", NULL},
};

typedef struct Term
{
	SelectorAttribute attribute;
	bool		negated;
	List	   *values;			/* of char * */
} Term;

/* Some clause has to match, of which every term has to; a clause without terms is "*". */
struct Selector
{
	List	   *clauses;		/* of List of Term * */
};

/* ---- parser ---- */

/* A copy of the text without the spaces around it. */
static char *
trimmed(const char *text, size_t length)
{
	while (length > 0 && strchr(" \t\r\n", text[0]) != NULL)
	{
		text++;
		length--;
	}
	while (length > 0 && strchr(" \t\r\n", text[length - 1]) != NULL)
		length--;
	return pnstrdup(text, length);
}

List *
split_trimmed(const char *text, char separator)
{
	List	   *parts = NIL;

	for (;;)
	{
		const char *end = strchr(text, separator);

		CHECK_FOR_INTERRUPTS();
		parts = lappend(parts, trimmed(text, end ? (size_t) (end - text) : strlen(text)));
		if (end == NULL)
			return parts;
		text = end + 1;
	}
}

/* Names as a list for a hint. */
static char *
listed(const char *const *names)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; names[i] != NULL; i++)
		appendStringInfo(&list, "%s%s", i == 0 ? "" : ", ", names[i]);
	return list.data;
}

/* Returns the hint that lists the attributes. */
static char *
attribute_hint(void)
{
	const char *names[SELECTOR_ATTRIBUTES + 1] = {NULL};

	for (int i = 0; i < SELECTOR_ATTRIBUTES; i++)
		names[i] = attributes[i].name;
	return psprintf("Attributes are %s.", listed(names));
}

/* Fails with an error that names the term. */
static void *
refuse_term(SelectorError *error, const char *term, char *problem, char *hint)
{
	*error = (SelectorError)
	{
		.term = pstrdup(term), .problem = problem, .hint = hint
	};
	return NULL;
}

/* Returns the attribute of that name, ours or GitLab's; -1 if there is none. */
static int
find_attribute(const char *name)
{
	for (int i = 0; i < SELECTOR_ATTRIBUTES; i++)
		if (strcmp(attributes[i].name, name) == 0 || strcmp(attributes[i].alias, name) == 0)
			return i;
	return -1;
}

/* Attribute, operator and values of a term; NULL with *error if it is none. */
static Term *
selector_parse_term(const char *text, SelectorError *error)
{
	const char *equals = strchr(text, '=');
	bool		negated = equals != NULL && equals > text && equals[-1] == '!';
	Term	   *term;
	char	   *name;
	int			attribute;
	ListCell   *cell;

	if (equals == NULL)
		return refuse_term(error, text, text[0] == '\0' ? "A term is empty." : "It has no operator.",
						   "A term is written attribute=value or attribute!=value, with several values as a,b.");
	name = trimmed(text, equals - text - (negated ? 1 : 0));
	attribute = find_attribute(name);
	if (attribute < 0)
		return refuse_term(error, text, psprintf("There is no attribute \"%s\".", name), attribute_hint());
	term = palloc(sizeof(Term));
	*term = (Term)
	{
		.attribute = attribute, .negated = negated, .values = split_trimmed(equals + 1, ',')
	};
	foreach(cell, term->values)
	{
		const char *value = lfirst(cell);
		const char *const *possible = attributes[attribute].values;

		if (value[0] == '\0')
			return refuse_term(error, text, "A value is empty.", "Separate values by one comma.");
		if (possible != NULL && option_value(possible, value) < 0)
			return refuse_term(error, text, psprintf("\"%s\" is no value of %s.", value, name),
							   psprintf("Values are %s.", listed(possible)));
	}
	return term;
}

Selector *
selector_parse(const char *text, SelectorError *error)
{
	Selector   *selector = palloc0(sizeof(Selector));
	ListCell   *clause_cell;

	if (strcmp(trimmed(text, strlen(text)), "*") == 0)
	{
		selector->clauses = list_make1(NIL);
		return selector;
	}
	foreach(clause_cell, split_trimmed(text, '|'))
	{
		List	   *clause = NIL;
		ListCell   *term_cell;

		foreach(term_cell, split_trimmed(lfirst(clause_cell), '&'))
		{
			Term	   *term = selector_parse_term(lfirst(term_cell), error);

			if (term == NULL)
				return NULL;
			clause = lappend(clause, term);
		}
		selector->clauses = lappend(selector->clauses, clause);
	}
	return selector;
}

/* Like selector_parse(), but an ERROR that names the term; "what" is what the selector is given for. */
static Selector *
selector_require(const char *text, const char *what)
{
	SelectorError error;
	Selector   *selector = selector_parse(text, &error);

	if (selector == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid term \"%s\" in the selector of %s", error.term, what),
				 errdetail("The selector is \"%s\". %s", text, error.problem),
				 errhint("%s", error.hint)));
	return selector;
}

/* Makes a selector of one term. */
static Selector *
single(SelectorAttribute attribute, char *value)
{
	Selector   *selector = palloc(sizeof(Selector));
	Term	   *term = palloc(sizeof(Term));

	*term = (Term)
	{
		.attribute = attribute, .values = list_make1(value)
	};
	selector->clauses = list_make1(list_make1(term));
	return selector;
}

Selector *
selector_of_queues(const char *text)
{
	const char *star = strchr(text, '*');

	if (strchr(text, '=') != NULL || strcmp(text, "*") == 0)
		return selector_require(text, "queues");
	if (text[0] != '\0' && star == NULL)
		return single(SELECT_NAME, pstrdup(text));
	if (star != NULL && star[1] == '\0' && star - text >= 2 && star[-1] == ':')
		return single(SELECT_QUEUE_NAMESPACE, pnstrdup(text, star - 1 - text));
	ereport(
		ERROR,
		(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid queue pattern \"%s\"", text),
		 text[0] == '\0' ? errdetail("It is empty.")
						 : errdetail("A \"*\" stands alone, or for all queues of a namespace."),
		 errhint(
			 "Give the name of a queue, \"namespace:*\", \"*\", or a selector such as \"urgency=high\".")));
}

/* ---- matching ---- */

/* A queue is in every namespace that its name begins with: "a:b" in "a". */
static bool
in_namespace(const char *queue, const char *namespace)
{
	size_t		length = strlen(namespace);

	return strncmp(queue, namespace, length) == 0 && queue[length] == ':';
}

/* Whether a value is among those that the subject has of the attribute. */
static bool
subject_has_value(SelectorAttribute attribute, const char *value, const Worker *worker, const char *queue)
{
	if (attribute == SELECT_NAME)
		return strcmp(queue, value) == 0;
	if (attribute == SELECT_QUEUE_NAMESPACE)
		return in_namespace(queue, value);
	if (worker == NULL)
		return false;
	switch (attribute)
	{
		case SELECT_WORKER_NAME:
			return strcmp(worker->name, value) == 0 || worker_has_alias(worker, value);
		case SELECT_FEATURE_CATEGORY:
			return worker->feature_category != NULL && strcmp(worker->feature_category, value) == 0;
		case SELECT_EXTERNAL_DEPENDENCIES:
			return strcmp(boolean_names[worker->external_dependencies], value) == 0;
		case SELECT_RESOURCE_BOUNDARY:
			return strcmp(boundary_names[worker->resource_boundary], value) == 0;
		case SELECT_TAGS:
			return worker_has_tag(worker, value);
		case SELECT_URGENCY:
			return strcmp(urgency_names[worker->urgency], value) == 0;
		default:
			return false;
	}
}

/* Whether the subject meets the term. */
static bool
term_matches(const Term *term, const Worker *worker, const char *queue)
{
	bool		meet = false;
	ListCell   *cell;

	foreach(cell, term->values)
	{
		CHECK_FOR_INTERRUPTS();
		meet = meet || subject_has_value(term->attribute, lfirst(cell), worker, queue);
	}
	return meet != term->negated;
}

bool
selector_matches(const Selector *selector, const Worker *worker, const char *queue)
{
	ListCell   *clause;

	foreach(clause, selector->clauses)
	{
		bool		all = true;
		ListCell   *term;

		foreach(term, (List *) lfirst(clause))
			all = all && term_matches(lfirst(term), worker, queue);
		if (all)
			return true;
	}
	return false;
}

/* The queue names of which a lane must have one to meet the clause; NIL: the clause demands no such name. */
static List *
queues_of_clause(List *clause)
{
	ListCell   *cell;

	foreach(cell, clause)
	{
		const Term *term = lfirst(cell);

		if (term->attribute == SELECT_NAME && !term->negated)
			return term->values;
	}
	return NIL;
}

bool
selector_queues(const Selector *selector, List **names)
{
	ListCell   *clause;

	foreach(clause, selector->clauses)
	{
		List	   *queues = queues_of_clause(lfirst(clause));

		if (queues == NIL)
			return false;
		*names = list_concat(*names, queues);
	}
	return true;
}

/* Calls for each queue or worker that the term names. */
static void
term_each_name(const Term *term, void (*call) (const char *name, SelectorName kind))
{
	ListCell   *cell;

	if (term->negated || (term->attribute != SELECT_NAME && term->attribute != SELECT_WORKER_NAME))
		return;
	foreach(cell, term->values)
	{
		CHECK_FOR_INTERRUPTS();
		call(lfirst(cell), term->attribute == SELECT_NAME ? SELECTED_QUEUE : SELECTED_WORKER);
	}
}

void
selector_each_name(const Selector *selector, void (*call) (const char *name, SelectorName kind))
{
	ListCell   *clause;
	ListCell   *term;

	foreach(clause, selector->clauses)
		foreach(term, (List *) lfirst(clause))
			term_each_name(lfirst(term), call);
}

/* ---- routing ---- */

/*
 * The registry asks once for every definition that it reads: whatever enqueues, deduplicates or heals finds
 * the routed queue in the Worker, and no rule is evaluated when a job is enqueued.
 */

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
