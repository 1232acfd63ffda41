/*
 * handler.c
 *		Handlers: the functions and procedures that workers name.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "arguments.h"
#include "catalog/namespace.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "fmgr.h"
#include "funcapi.h"
#include "handler.h"
#include "miscadmin.h"
#include "subtransaction.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

/*
 * Where a function's name goes on with its argument types: at the first parenthesis outside of quotes; NULL
 * if it has none.
 */
static char *
first_parenthesis(char *function)
{
	bool		quoted = false;

	for (char *c = function; *c != '\0'; c++)
	{
		if (*c == '"')
			quoted = !quoted;
		else if (*c == '(' && !quoted)
			return c;
	}
	return NULL;
}

/* Whether the name was given with its types. */
static bool
has_argument_types(const char *function)
{
	return first_parenthesis(unconstify(char *, function)) != NULL;
}

typedef struct FunctionSearch
{
	const char *name;
	Oid			found;
} FunctionSearch;

/* Finds the function by name and types; ERROR if there is none. */
static void
find_by_types(void *argument)
{
	FunctionSearch *search = argument;

	search->found = DatumGetObjectId(DirectFunctionCall1(regprocedurein, CStringGetDatum(search->name)));
}

/*
 * Finds a function by "schema.name(types)". What the server's parser of such names has against it becomes the
 * reason.
 */
static Oid
find_function_with_types(const char *function, char **why)
{
	FunctionSearch search = {.name = function, .found = InvalidOid};
	ErrorData  *error = subtransaction_try(find_by_types, &search);

	rethrow_our_own(error);
	*why = error ? error->message : psprintf("function %s does not exist", function);
	return error ? InvalidOid : search.found;
}

/*
 * Finds a function by "schema.name" or "schema.name(types)". Without types the name must be unique in its
 * schema. Names without a schema are looked up along the search_path, and only when a worker is defined. A
 * schema that the current user may not use is an ERROR.
 */
Oid
handler_function(const char *function, char **why)
{
	FuncCandidateList found;
	List	   *names;

	if (has_argument_types(function))
		return find_function_with_types(function, why);
	names = QjQualifiedNameList(function);
	found = QjFunctionCandidates(names);
	if (found == NULL)
	{
		*why = psprintf("function %s does not exist", function);
		return InvalidOid;
	}
	if (found->next != NULL)
	{
		*why = psprintf("function name %s is not unique", function);
		return InvalidOid;
	}
	return found->oid;
}

/* ---- bound functions ---- */

/* Returns the types of a function's parameters. */
static char *
argument_types(Form_pg_proc proc)
{
	StringInfoData types;

	initStringInfo(&types);
	for (int i = 0; i < proc->pronargs; i++)
		appendStringInfo(&types, "%s%s", i > 0 ? "," : "",
						 format_type_be_qualified(proc->proargtypes.values[i]));
	return types.data;
}

/*
 * Writes down which function a name stands for. The function's stored name has types only if the given name
 * has.
 */
BoundFunction
handler_bind(Oid oid, const char *given)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(oid));
	Form_pg_proc proc = HeapTupleIsValid(tuple) ? (Form_pg_proc) GETSTRUCT(tuple) : NULL;
	char	   *schema = proc ? get_namespace_name(proc->pronamespace) : NULL;
	BoundFunction function;

	if (schema == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("handler \"%s\" cannot be found", given),
				 errdetail("It has been dropped meanwhile."),
				 errhint("Create it, and try again.")));
	function.name = has_argument_types(given) ? format_procedure_qualified(oid)
											  : quote_qualified_identifier(schema, NameStr(proc->proname));
	function.arguments = argument_types(proc);
	function.owner = proc->proowner;
	ReleaseSysCache(tuple);
	return function;
}

/*
 * Schema and name of a bound function, without its types; false if the schema is gone, or it is no name: the
 * row was written by hand.
 */
static bool
split_name(const char *function, Oid *schema, char **name)
{
	char	   *qualified = pstrdup(function);
	char	   *types = first_parenthesis(qualified);
	List	   *names;

	if (types != NULL)
		*types = '\0';
	if (!SplitIdentifierString(qualified, '.', &names) || list_length(names) != 2)
		return false;
	*schema = get_namespace_oid(linitial(names), true);
	*name = lsecond(names);
	return OidIsValid(*schema);
}

/* The functions of a schema that have a bound function's name. */
typedef struct Candidates
{
	Oid			exact;			/* of its types */
	Oid			exact_owner;
	Oid			other;			/* of other types, its owner's; the last of them */
	int			others;
} Candidates;

/* Finds the functions of that name in the schema. */
static void
find_candidates(const BoundFunction *function, Candidates *candidates)
{
	CatCList   *list;
	Oid			schema;
	char	   *name;

	if (!split_name(function->name, &schema, &name))
		return;
	list = SearchSysCacheList1(PROCNAMEARGSNSP, CStringGetDatum(name));
	for (int i = 0; i < list->n_members; i++)
	{
		Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(&list->members[i]->tuple);

		if (proc->pronamespace != schema)
			continue;
		if (strcmp(argument_types(proc), function->arguments) == 0)
		{
			candidates->exact = proc->oid;
			candidates->exact_owner = proc->proowner;
		}
		else if (proc->proowner == function->owner)
		{
			candidates->other = proc->oid;
			candidates->others++;
		}
	}
	ReleaseSysCacheList(list);
}

/* Returns a role's name, for a message. */
static const char *
role_name(Oid role)
{
	char	   *name = GetUserNameFromId(role, true);

	return name ? name : psprintf("unknown (OID=%u)", role);
}

/* The function of its types that is its owner's; *candidates tells what else there is. */
static Oid
exact_function(const BoundFunction *function, Candidates *candidates, char **why)
{
	*candidates = (Candidates) {0};
	if (!OidIsValid(function->owner) || function->arguments == NULL)
	{
		*why = "it is bound to no role: define the worker again";
		return InvalidOid;
	}
	find_candidates(function, candidates);
	if (!OidIsValid(candidates->exact))
		*why = psprintf("function %s does not exist", function->name);
	else if (candidates->exact_owner != function->owner)
		*why = psprintf("it belongs to role \"%s\" now, not to \"%s\": define the worker again", role_name(candidates->exact_owner),
						role_name(function->owner));
	else
		return candidates->exact;
	return InvalidOid;
}

/* The function, or if its name has no types and it is gone, the only other one of its owner's. */
static Oid
bound_function(const BoundFunction *function, char **why)
{
	Candidates	candidates;
	Oid			oid = exact_function(function, &candidates, why);

	if (OidIsValid(oid) || candidates.others == 0 || has_argument_types(function->name))
		return oid;
	if (candidates.others == 1)
		return candidates.other;
	*why = psprintf("function name %s is not unique", function->name);
	return InvalidOid;
}

/* ---- what fits ---- */

/* Returns what is wrong with a function as a handler, or NULL. */
static char *
handler_misfit(Form_pg_proc proc)
{
	if (proc->prokind != PROKIND_FUNCTION && proc->prokind != PROKIND_PROCEDURE)
		return "it is an aggregate or window function";
	if (proc->proretset)
		return "it returns a set";
	if (proc->prorettype == TRIGGEROID || proc->prorettype == EVENT_TRIGGEROID ||
		proc->prorettype == INTERNALOID)
		return "it cannot be called by SQL";
	if (OidIsValid(proc->provariadic))
		return "it is variadic";
	if (isAnyTempNamespace(proc->pronamespace))
		return "it is temporary, and no executor can see it";
	return NULL;
}

/* Fills in a handler's parameters; what is wrong with them, or NULL. */
static char *
read_parameters(HeapTuple tuple, Handler *handler)
{
	Form_pg_proc proc = (Form_pg_proc) GETSTRUCT(tuple);
	Oid		   *types;
	char	  **names;
	char	   *modes;
	int			total = get_func_arg_info(tuple, &types, &names, &modes);
	int			seen = 0;

	handler->parameters = palloc0(sizeof(HandlerParameter) * Max(total, 1));
	for (int i = 0; i < total; i++)
	{
		bool		input = modes == NULL || modes[i] == PROARGMODE_IN || modes[i] == PROARGMODE_INOUT;
		HandlerParameter *parameter = &handler->parameters[handler->nparameters];

		if (!input && !handler->is_procedure)
			continue;
		parameter->name = names == NULL || names[i] == NULL ? "" : names[i];
		parameter->type = types[i];
		parameter->out = !input;
		parameter->in_out = handler->is_procedure && modes != NULL && modes[i] == PROARGMODE_INOUT;
		if (input)
			parameter->has_default = ++seen > proc->pronargs - proc->pronargdefaults;
		handler->nparameters++;
	}
	handler->takes_args = seen == 1 && handler->nparameters == 1 && handler->parameters[0].type == JSONBOID;
	for (int i = 0; i < handler->nparameters && !handler->takes_args; i++)
	{
		if (handler->parameters[i].name[0] == '\0')
			return "it has a parameter without a name";
		if (get_typtype(handler->parameters[i].type) == TYPTYPE_PSEUDO)
			return psprintf("its parameter \"%s\" is of no definite type", handler->parameters[i].name);
	}
	return NULL;
}

/* Whether it is the jsonb parameter of that name. */
static bool
is_parameter(const HandlerParameter *parameter, const char *name)
{
	return !parameter->out && parameter->type == JSONBOID && strcmp(parameter->name, name) == 0;
}

/* A parameter "args jsonb" that is the only one beside those that the engine fills takes the args. */
static void
take_whole_args(Handler *handler)
{
	HandlerParameter *other = NULL;
	int			others = 0;

	for (int i = 0; i < handler->nparameters; i++)
	{
		if (handler->parameters[i].source != PARAMETER_KEY)
			continue;
		other = &handler->parameters[i];
		others++;
	}
	if (others == 1 && handler->nparameters > 1 && is_parameter(other, "args"))
		other->source = PARAMETER_ARGS;
}

/*
 * "cursor jsonb" and "results jsonb" are filled by the engine. The only jsonb parameter of a handler is its
 * args, whatever its name is, except "results", and a cursor that has a default, which no args need.
 */
static void
take_cursor_and_results(Handler *handler)
{
	for (int i = 0; i < handler->nparameters; i++)
	{
		HandlerParameter *parameter = &handler->parameters[i];

		if (handler->takes_args && !parameter->has_default && !is_parameter(parameter, "results"))
			continue;
		if (is_parameter(parameter, "cursor"))
			parameter->source = PARAMETER_CURSOR;
		else if (is_parameter(parameter, "results"))
			parameter->source = PARAMETER_RESULTS;
		if (parameter->source != PARAMETER_KEY)
			handler->takes_args = false;
	}
	if (!handler->takes_args)
		take_whole_args(handler);
}

/* Reads a function as a handler; NULL, with *why, if it cannot be one. */
static Handler *
read_handler(Oid oid, char **why)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(oid));
	Form_pg_proc proc;
	Handler    *handler;
	char	   *schema;

	if (!HeapTupleIsValid(tuple))
	{
		*why = psprintf("function with OID %u does not exist", oid);
		return NULL;
	}
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	handler = palloc0(sizeof(Handler));
	schema = get_namespace_name(proc->pronamespace);
	handler->oid = oid;
	handler->call_name = quote_qualified_identifier(schema ? schema : "", NameStr(proc->proname));
	handler->schema = proc->pronamespace;
	handler->is_sql = proc->prolang == SQLlanguageId;
	handler->is_procedure = proc->prokind == PROKIND_PROCEDURE;
	handler->returns_void = proc->prorettype == VOIDOID;
	handler->returns_jsonb = proc->prorettype == JSONBOID;
	*why = handler_misfit(proc);
	if (*why == NULL)
		*why = read_parameters(tuple, handler);
	if (*why == NULL)
		take_cursor_and_results(handler);
	ReleaseSysCache(tuple);
	return *why == NULL ? handler : NULL;
}

/* ERROR for a handler that is not found, or cannot be one. */
static void
refuse_handler(const char *name, bool found, const char *reason)
{
	if (!found)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("handler \"%s\" cannot be found", name),
				 errdetail_internal("%s", as_sentence(reason)),
				 errhint("Name a function or procedure as schema.name, or as schema.name(types) if there are several.")));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
			 errmsg("function \"%s\" cannot be a handler", name),
			 errdetail("As a handler it does not fit: %s.", reason),
			 errhint("A handler takes one jsonb, or named parameters that are filled from the args, and returns one value, or nothing.")));
}

Handler *
handler_named(const char *name)
{
	char	   *reason = NULL;
	Oid			oid = handler_function(name, &reason);
	Handler    *handler = OidIsValid(oid) ? read_handler(oid, &reason) : NULL;

	if (handler == NULL)
		refuse_handler(name, OidIsValid(oid), reason);
	return handler;
}

Handler *
handler_find(const BoundFunction *function, char **why)
{
	Oid			oid = bound_function(function, why);

	return OidIsValid(oid) ? read_handler(oid, why) : NULL;
}

bool
handler_may_be_called(const Handler *handler, Oid role)
{
	return QjSchemaAclCheck(handler->schema, role, ACL_USAGE) == ACLCHECK_OK &&
		QjFunctionAclCheck(handler->oid, role, ACL_EXECUTE) == ACLCHECK_OK;
}

void
handler_take_read(Handler *handler)
{
	for (int i = 0; i < handler->nparameters; i++)
	{
		if (!is_parameter(&handler->parameters[i], "read"))
			continue;
		handler->takes_args = false;
		handler->parameters[i].source = PARAMETER_READ;
		take_whole_args(handler);
	}
}

Oid
handler_backoff(const BoundFunction *function, char **why)
{
	Candidates	candidates;
	Oid			oid = exact_function(function, &candidates, why);

	if (!OidIsValid(oid))
		return InvalidOid;
	if (get_func_prokind(oid) == PROKIND_FUNCTION && !get_func_retset(oid) &&
		get_func_rettype(oid) == INTERVALOID)
		return oid;
	*why = psprintf("function %s does not return one interval", function->name);
	return InvalidOid;
}
