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
#include "commands/defrem.h"
#include "compat.h"
#include "fmgr.h"
#include "funcapi.h"
#include "handler.h"
#include "miscadmin.h"
#include "run_as.h"
#include "subtransaction.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

/* Whether a text names a function with its argument types: it has a parenthesis outside of quoted names. */
static bool
has_argument_types(const char *function)
{
	bool		quoted = false;

	for (const char *c = function; *c != '\0'; c++)
	{
		if (*c == '"')
			quoted = !quoted;
		else if (*c == '(' && !quoted)
			return true;
	}
	return false;
}

typedef struct FunctionSearch
{
	const char *name;
	Oid			found;
} FunctionSearch;

static void
find_by_types(void *argument)
{
	FunctionSearch *search = argument;

	search->found = DatumGetObjectId(DirectFunctionCall1(regprocedurein, CStringGetDatum(search->name)));
}

/*
 * Finds a function by "schema.name(types)". A schema or type that is gone is an ERROR to the server's parser of such
 * names, and must be none to us: the worker's jobs wait, and no others are kept from running.
 */
static Oid
find_function_with_types(const char *function, char **why)
{
	FunctionSearch search = {.name = function,.found = InvalidOid};
	ErrorData  *error = subtransaction_try(find_by_types, &search);

	rethrow_our_own(error);
	*why = error ? error->message : psprintf("function %s does not exist", function);
	return error ? InvalidOid : search.found;
}

/*
 * Finds a function by "schema.name" or "schema.name(types)". Without types the name must be unique in its schema. Names
 * without a schema are looked up along the search_path, and only when a worker is defined. A schema that the current user may
 * not use is an ERROR.
 */
Oid
handler_function(const char *function, char **why)
{
	FuncCandidateList found;
	List	   *names;

	if (has_argument_types(function))
		return find_function_with_types(function, why);
	names = QjQualifiedNameList(function);
	found = FuncnameGetCandidates(names, -1, NIL, false, false, false, true);
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

/*
 * Finds a function by the name that is kept with a worker. All must find the same, executors, the scheduler and whoever looks
 * at the views: a role that may not use the schema is refused when it calls the function, and only then.
 */
static Oid
kept_function(const char *function, char **why)
{
	RunAs		saved;
	Oid			oid;

	lookup_begin(&saved);
	oid = handler_function(function, why);
	lookup_end(&saved);
	return oid;
}

/* What is wrong with a function as a handler, or NULL. */
static char *
handler_misfit(Form_pg_proc proc)
{
	if (proc->prokind != PROKIND_FUNCTION && proc->prokind != PROKIND_PROCEDURE)
		return "it is an aggregate or window function";
	if (proc->proretset)
		return "it returns a set";
	if (proc->prorettype == TRIGGEROID || proc->prorettype == EVENT_TRIGGEROID || proc->prorettype == INTERNALOID)
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
	int			inputs = 0;
	int			seen = 0;

	for (int i = 0; i < total; i++)
		if (modes == NULL || modes[i] == PROARGMODE_IN || modes[i] == PROARGMODE_INOUT)
			inputs++;
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
			parameter->has_default = ++seen > inputs - proc->pronargdefaults;
		handler->nparameters++;
	}
	handler->takes_args = inputs == 1 && handler->nparameters == 1 && handler->parameters[0].type == JSONBOID;
	for (int i = 0; i < handler->nparameters && !handler->takes_args; i++)
	{
		if (handler->parameters[i].name[0] == '\0')
			return "it has a parameter without a name";
		if (get_typtype(handler->parameters[i].type) == TYPTYPE_PSEUDO)
			return psprintf("its parameter \"%s\" is of no definite type", handler->parameters[i].name);
	}
	return NULL;
}

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
	ReleaseSysCache(tuple);
	return *why == NULL ? handler : NULL;
}

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
handler_find(const char *name, char **why)
{
	char	   *reason = NULL;
	Oid			oid = kept_function(name, &reason);
	Handler    *handler = OidIsValid(oid) ? read_handler(oid, &reason) : NULL;

	if (handler == NULL && why == NULL)
		refuse_handler(name, OidIsValid(oid), reason);
	if (why != NULL)
		*why = reason;
	return handler;
}

bool
handler_may_be_called(const Handler *handler, Oid role)
{
	return QjSchemaAclCheck(handler->schema, role, ACL_USAGE) == ACLCHECK_OK &&
		QjFunctionAclCheck(handler->oid, role, ACL_EXECUTE) == ACLCHECK_OK;
}

static bool
is_parameter(const HandlerParameter *parameter, const char *name)
{
	return !parameter->out && parameter->type == JSONBOID && strcmp(parameter->name, name) == 0;
}

void
handler_take_read(Handler *handler)
{
	HandlerParameter *read = NULL;
	HandlerParameter *other = NULL;

	for (int i = 0; i < handler->nparameters; i++)
	{
		if (is_parameter(&handler->parameters[i], "read"))
			read = &handler->parameters[i];
		else
			other = &handler->parameters[i];
	}
	if (read == NULL)
		return;
	handler->takes_args = false;
	read->source = PARAMETER_READ;
	if (handler->nparameters == 2 && is_parameter(other, "args"))
		other->source = PARAMETER_ARGS;
}

Oid
handler_backoff(const char *function)
{
	char	   *why = NULL;
	Oid		   *types;
	int			nargs;
	Oid			oid = kept_function(function, &why);

	if (OidIsValid(oid) && get_func_prokind(oid) == PROKIND_FUNCTION && !get_func_retset(oid) &&
		get_func_signature(oid, &types, &nargs) == INTERVALOID && nargs == 1 && types[0] == INT4OID)
		return oid;
	return InvalidOid;
}

/* With types only if it was given with them. */
char *
handler_qualified_name(Oid oid, const char *given)
{
	char	   *schema = get_namespace_name(get_func_namespace(oid));
	char	   *name = get_func_name(oid);

	if (schema == NULL || name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("handler \"%s\" cannot be found", given),
				 errdetail("It has been dropped meanwhile."),
				 errhint("Create it, and try again.")));
	return has_argument_types(given) ? format_procedure_qualified(oid) : quote_qualified_identifier(schema, name);
}
