/*
 * filter.h
 *		Which jobs: what search_jobs() and the actions on all that match are given.
 */
#ifndef QUEUE_JOBS_WEB_FILTER_H
#define QUEUE_JOBS_WEB_FILTER_H

#include "page.h"

#define FILTER_VALUES 9
#define FILTER_STATES 2	/* of them: which states */

/*
 * The arguments by name; $1 to $9 are the values. A time may also be how long ago it is: "2 hours".
 * Tags are separated by commas, or an array as the database writes it.
 */
#define FILTER_ARGUMENTS \
	"worker => $1, queue => $2, states => $3::text[], args => $4::jsonb, " \
	"error => CASE WHEN strpos($5, '%') > 0 THEN $5 ELSE '%' || $5 || '%' END, batch => $6::bigint, " \
	"since => CASE WHEN $7 ~ '^ *[0-9.]+ *[a-z]+ *$' THEN now() - $7::interval ELSE $7::timestamptz END, " \
	"until => CASE WHEN $8 ~ '^ *[0-9.]+ *[a-z]+ *$' THEN now() - $8::interval ELSE $8::timestamptz END, " \
	"tags => CASE WHEN $9 ~ '^ *[{]' THEN $9::text[] ELSE regexp_split_to_array(btrim($9), ' *, *') END"

typedef struct Filter
{
	const char *values[FILTER_VALUES];	/* in the order of the arguments; NULL: any */
	char		states[128];	/* an array, as the database reads it */
} Filter;

extern const char *const filter_states[];

extern void filter_read(Filter *filter, const Params *params);
extern bool filter_has_state(const Filter *filter, const char *state);
extern bool filter_is_empty(const Filter *filter);
/* As hidden fields, and as part of a query (HTML). */
extern void filter_hidden(Page *page, const Filter *filter);
extern void filter_query(Buffer *out, const Filter *filter);

#endif
