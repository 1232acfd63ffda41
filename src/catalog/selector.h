/*
 * selector.h
 *		Selectors: a choice of workers and queues by their attributes, in GitLab's grammar. No table access
 *		here, but for a worker's tags if they are many.
 *
 *		query  = "*" | clause ("|" clause)*
 *		clause = term ("&" term)*
 *		term   = attribute ("=" | "!=") value ("," value)*
 *
 * "=" means that the term's values and those of the subject have one in common, "!=" that they have none.
 * Spaces around names and values do not count.
 */
#ifndef QUEUE_JOBS_SELECTOR_H
#define QUEUE_JOBS_SELECTOR_H

#include "utils/jsonb.h"
#include "utils/snapshot.h"
#include "worker.h"

/* A selector that has been parsed; lives in the memory context of that time. */
typedef struct Selector Selector;

/* Why a selector is refused. */
typedef struct SelectorError
{
	char	   *term;			/* as it was written */
	char	   *problem;		/* a sentence */
	char	   *hint;			/* a sentence */
} SelectorError;

/* The parts of a text between separators, without the spaces around them; one empty part if it is empty. */
extern List *split_trimmed(const char *text, char separator);

/* NULL if the text is none, with the reason in *error. */
extern Selector *selector_parse(const char *text, SelectorError *error);

/*
 * Parses an element of a list of queues, as claim() takes them: a queue's name, "namespace:*", "*", or a
 * selector. ERROR if it is none of these.
 */
extern Selector *selector_of_queues(const char *text);

/*
 * Whether a worker is meant, whose jobs wait in that queue. worker may be NULL: then only the queue is known.
 */
extern bool selector_matches(const Selector *selector, const Worker *worker, const char *queue);

/*
 * Whether the selector can mean no other queues than those that it names. Appends these names to *names, as
 * char *.
 */
extern bool selector_queues(const Selector *selector, List **names);

/* Calls the function for each queue and worker that the selector chooses by name. */
typedef enum SelectorName
{
	SELECTED_QUEUE,
	SELECTED_WORKER,
} SelectorName;

extern void selector_each_name(const Selector *selector, void (*call) (const char *name, SelectorName kind));

/* ---- routing ---- */

/*
 * Routing: ordered rules that say which queue a worker's jobs wait in; the first whose selector matches
 * wins.
 */

/* ERROR unless they are rules. */
extern void routing_check(Jsonb *rules);

/*
 * Returns the version of the row with the rules that set_routing() stored; all zero if there is none.
 * Unless "rules" is NULL, it also reads them, in the current memory context.
 */
extern RowVersion routing_read(Snapshot snapshot, List **rules);

/* The queue that the rules give the worker; its own if none does. */
extern char *routing_queue(List *rules, Worker *worker);

#endif
