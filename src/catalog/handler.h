/*
 * handler.h
 *		Handlers: the functions and procedures that workers name.
 */
#ifndef QUEUE_JOBS_HANDLER_H
#define QUEUE_JOBS_HANDLER_H

/* From the args on, each is also the number by which a function's statement has it (call.c). */
typedef enum ParameterSource
{
	PARAMETER_KEY,				/* the args' key of its name */
	PARAMETER_ARGS,				/* the args as a whole, beside one of the following */
	PARAMETER_READ = 3,			/* what the worker's read handler returned */
	PARAMETER_CURSOR,			/* where a long job goes on */
	PARAMETER_RESULTS,			/* what the jobs that it has waited for returned */
} ParameterSource;

#define PARAMETER_SOURCES (PARAMETER_RESULTS + 1)

/* The source that a parameter of a handler is filled from. */
typedef struct HandlerParameter
{
	ParameterSource source;
	char	   *name;
	Oid			type;
	bool		has_default;
	bool		out;			/* of a procedure: NULL is passed, the value becomes part of the result */
	bool		in_out;			/* of a procedure: the value afterwards becomes part of the result, too */
} HandlerParameter;

/*
 * A function as a worker's definition has it. It is bound to its owner: in a schema in which others may
 * create, one of theirs could take its place when it is dropped, or make its name ambiguous.
 */
typedef struct BoundFunction
{
	const char *name;			/* "schema.name", or "schema.name(types)" */
	const char *arguments;		/* its types, qualified and in order: "pg_catalog.jsonb,integer" */
	Oid			owner;
} BoundFunction;

typedef struct Handler
{
	Oid			oid;			/* invalid for a command */
	char	   *call_name;		/* quoted and qualified */
	Oid			schema;
	bool		is_procedure;	/* may commit, and so may a command */
	bool		is_sql;
	bool		takes_args;		/* the one parameter is the args */
	bool		returns_void;
	bool		returns_jsonb;
	int			nparameters;
	HandlerParameter *parameters;
} Handler;

/*
 * Finds a worker's handler, as of now, in the current memory context: of the bound owner's functions of that
 * name the one of these types; if it is gone and the name has no types, the only one there is. All find the
 * same, also a role that may not use the schema. On failure NULL, with the reason in *why.
 */
extern Handler *handler_find(const BoundFunction *function, char **why);

/*
 * Finds one by the name that a definition gives it; an ERROR if there is none that the current user may name.
 */
extern Handler *handler_named(const char *name);

/* Whether the role has what a call takes: USAGE on the schema, EXECUTE on the function. */
extern bool handler_may_be_called(const Handler *handler, Oid role);

/*
 * The handler is one of a worker with a read handler: its parameter "read jsonb" takes what that returned, a
 * parameter "args jsonb" that is the only other one takes the args.
 */
extern void handler_take_read(Handler *handler);

/*
 * Finds any function by the name that a definition gives it; InvalidOid, with the reason in *why, if there is
 * none.
 */
extern Oid	handler_function(const char *function, char **why);

/* The function as a definition is to have it. "given" is how it was named when it was found. */
extern BoundFunction handler_bind(Oid oid, const char *given);

#define BACKOFF_ARGUMENTS "integer"
#define READ_HANDLER_ARGUMENTS "pg_catalog.jsonb"

/*
 * The OID of a retry_backoff function; InvalidOid, with the reason in *why, if it is gone, another's, or does
 * not fit.
 */
extern Oid	handler_backoff(const BoundFunction *function, char **why);

#endif
