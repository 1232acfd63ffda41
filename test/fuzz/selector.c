/* Selectors: whatever the text, it is refused with its term, or it can be asked of any worker, with the same answer twice. */
#include "postgres.h"

#include "fuzz.h"
#include "nodes/pg_list.h"
#include "selector.h"

/* Its tags are in the row, which there is none of here. */
bool
worker_has_tag(const Worker *worker, const char *tag)
{
	return strcmp(tag, "urgent") == 0;
}

/* Nor are its aliases here. */
bool
worker_has_alias(const Worker *worker, const char *name)
{
	return strcmp(name, "former") == 0;
}

/* By the names that a lane must have one of, if the selector demands a name. */
static bool
may_choose(const Selector *selector, const char *queue)
{
	List	   *names = NIL;
	ListCell   *cell;

	if (!selector_queues(selector, &names))
		return true;
	foreach(cell, names)
		if (strcmp(lfirst(cell), queue) == 0)
			return true;
	return false;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char	   *text = pnstrdup((const char *) data, size);
	SelectorError error = {0};
	Selector   *selector = selector_parse(text, &error);
	Worker		worker = {.name = "mail",.urgency = URGENCY_HIGH,.feature_category = "sending"};

	if (selector == NULL)
		ALWAYS(error.problem != NULL && error.term != NULL);
	else
	{
		ALWAYS(selector_matches(selector, NULL, "mail") == selector_matches(selector, NULL, "mail"));
		ALWAYS(selector_matches(selector, &worker, "a:mail") == selector_matches(selector, &worker, "a:mail"));
		ALWAYS(!selector_matches(selector, &worker, "a:mail") || may_choose(selector, "a:mail"));
		ALWAYS(strcmp(text, "*") != 0 || selector_matches(selector, &worker, ""));
	}
	fuzz_free_all();
	return 0;
}
