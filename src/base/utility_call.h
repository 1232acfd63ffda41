/*
 * utility_call.h
 *		A utility statement on its way through those modules that take part in it (hooks.c: in which order).
 *
 * Each may act before and after it, and lets it go on by utility_proceed() in between, once.
 */
#ifndef QUEUE_JOBS_UTILITY_CALL_H
#define QUEUE_JOBS_UTILITY_CALL_H

#include "tcop/utility.h"

typedef struct UtilityCall
{
	PlannedStmt *statement;
	const char *query;
	bool		read_only_tree;
	ProcessUtilityContext context;
	ParamListInfo params;
	QueryEnvironment *environment;
	DestReceiver *destination;
	QueryCompletion *completion;
	int			next;			/* module that it reaches next */
	void		(*proceed) (struct UtilityCall *call);
} UtilityCall;

/* The modules that come after this one, then the server. */
static inline void
utility_proceed(UtilityCall *call)
{
	call->proceed(call);
}

#endif
