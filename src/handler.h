/*
 * handler.h
 *		Handlers: the functions and procedures that workers name.
 */
#ifndef QUEUE_JOBS_HANDLER_H
#define QUEUE_JOBS_HANDLER_H

typedef enum ParameterSource
{
	PARAMETER_KEY,				/* the args' key of its name */
	PARAMETER_ARGS,				/* the args as a whole, beside what was read */
	PARAMETER_READ,				/* what the worker's read handler returned */
} ParameterSource;

/* What one parameter of a handler is filled from. */
typedef struct HandlerParameter
{
	ParameterSource source;
	char	   *name;
	Oid			type;
	bool		has_default;
	bool		out;			/* of a procedure: NULL is passed, the value becomes part of the result */
	bool		in_out;			/* of a procedure: the value afterwards becomes part of the result, too */
} HandlerParameter;

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
 * Finds the handler by the name that is kept with its worker, as of now, in the current memory context; also where the current
 * user may not use its schema. On failure NULL, with the reason in *why, or an ERROR if why is NULL.
 */
extern Handler *handler_find(const char *name, char **why);

/* Finds one by the name that somebody gives it who defines a worker; an ERROR if there is none that he may name. */
extern Handler *handler_named(const char *name);

/* Whether the role has what a call takes: USAGE on the schema, EXECUTE on the function. */
extern bool handler_may_be_called(const Handler *handler, Oid role);

/*
 * The handler is one of a worker with a read handler: its parameter "read jsonb" takes what that returned, a parameter
 * "args jsonb" that is the only other one takes the args.
 */
extern void handler_take_read(Handler *handler);

/* Finds any function by a name that somebody gives; InvalidOid, with the reason in *why, if there is none. */
extern Oid	handler_function(const char *function, char **why);

/* The name under which a function is kept, qualified. "given" is how it was named when it was found. */
extern char *handler_qualified_name(Oid oid, const char *given);

/* The OID of a retry_backoff function; InvalidOid if it is gone, or there is another by that name, which does not fit. */
extern Oid	handler_backoff(const char *function);

#endif
