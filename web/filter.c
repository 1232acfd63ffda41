/*
 * filter.c
 *		Which jobs.
 */
#include "filter.h"

#include <string.h>

/* The form's names of the values; states come as a parameter for each. */
static const char *const names[FILTER_VALUES] = {"worker", "queue", NULL, "args", "error", "batch", "since", "until", "tags"};

const char *const filter_states[] = {
	"scheduled", "available", "executing", "retryable", "waiting", "completed", "cancelled", "dead", NULL
};

static void
add_state_name(Filter *filter, const char *state)
{
	for (int i = 0; filter_states[i]; i++)
		if (strcmp(filter_states[i], state) == 0 && !filter_has_state(filter, state))
		{
			strcat(filter->states, *filter->states ? "," : "{");
			strcat(filter->states, state);
		}
}

void
filter_read(Filter *filter, const Params *params)
{
	memset(filter, 0, sizeof(*filter));
	for (int i = 0; i < FILTER_VALUES; i++)
		if (names[i])
			filter->values[i] = param_given(params, names[i]);
	/* Who may not see args may not find out by searching for them. */
	if (options.hide_args)
		filter->values[3] = NULL;
	for (int i = 0; i < params->count; i++)
		if (strcmp(params->list[i].name, "state") == 0)
			add_state_name(filter, params->list[i].value);
	if (*filter->states)
	{
		strcat(filter->states, "}");
		filter->values[FILTER_STATES] = filter->states;
	}
}

bool
filter_has_state(const Filter *filter, const char *state)
{
	const char *found = strstr(filter->states, state);

	return found != NULL && strchr("{,", found[-1]) && strchr(",}", found[strlen(state)]);
}

bool
filter_is_empty(const Filter *filter)
{
	for (int i = 0; i < FILTER_VALUES; i++)
		if (filter->values[i])
			return false;
	return true;
}

void
filter_hidden(Page *page, const Filter *filter)
{
	for (int i = 0; i < FILTER_VALUES; i++)
		if (names[i])
			form_hidden(page, names[i], filter->values[i]);
	for (int i = 0; filter_states[i]; i++)
		if (filter_has_state(filter, filter_states[i]))
			form_hidden(page, "state", filter_states[i]);
}

void
filter_query(Buffer *out, const Filter *filter)
{
	for (int i = 0; i < FILTER_VALUES; i++)
		if (names[i] && filter->values[i])
			add(out, "&amp;%r=%u", names[i], filter->values[i]);
	for (int i = 0; filter_states[i]; i++)
		if (filter_has_state(filter, filter_states[i]))
			add(out, "&amp;state=%r", filter_states[i]);
}
