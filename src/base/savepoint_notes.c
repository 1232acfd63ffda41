/*
 * savepoint_notes.c
 *		Notes that end with a savepoint; see savepoint_notes.h.
 */
#include "postgres.h"

#include "savepoint_notes.h"
#include "utils/memutils.h"

#define MOST_KEPT (64 * 1024)	/* bytes of a list's memory, after a transaction that needed more */

static SavepointNotes *all_lists = NULL;

/* Where the nesting level of that note stands. */
static int *
level_of(const SavepointNotes *list, int i)
{
	return (int *) ((char *) list->notes + i * list->size);
}

/* Grows the list's array. Its room changes only when the memory is there. */
static void
make_room_for_note(SavepointNotes *list)
{
	int			larger = Max(list->room * 2, 16);

	list->notes = list->notes ? repalloc_huge(list->notes, larger * list->size)
							  : MemoryContextAllocHuge(TopMemoryContext, larger * list->size);
	list->room = larger;
	if (list->known)
		return;
	list->known = true;
	list->next = all_lists;
	all_lists = list;
}

void *
savepoint_note_add(SavepointNotes *list)
{
	int		   *note;

	if (list->count == list->room)
		make_room_for_note(list);
	note = level_of(list, list->count++);
	memset(note, 0, list->size);
	*note = GetCurrentTransactionNestLevel();
	return note;
}

int
savepoint_notes_first(const SavepointNotes *list, int nest_level)
{
	int			first = list->count;

	while (first > 0 && *level_of(list, first - 1) >= nest_level)
		first--;
	return first;
}

void
savepoint_notes_forget(SavepointNotes *list)
{
	list->count = 0;
	if (list->room * list->size <= MOST_KEPT)
		return;
	pfree(list->notes);
	list->notes = NULL;
	list->room = 0;
}

/* Gives the notes of a savepoint to the level above, or forgets them. */
static void
end_of_savepoint(SavepointNotes *list, int nest_level, bool released)
{
	int			first = savepoint_notes_first(list, nest_level);

	for (int i = first; released && i < list->count; i++)
		*level_of(list, i) = nest_level - 1;
	if (released || list->keeps)
		return;
	if (list->rolled_back)
		list->rolled_back(first);
	list->count = first;
}

void
savepoint_notes_event(SubXactEvent event)
{
	int			nest_level = GetCurrentTransactionNestLevel();

	for (SavepointNotes *list = all_lists; list != NULL; list = list->next)
		if (list->count > 0)
			end_of_savepoint(list, nest_level, event == SUBXACT_EVENT_COMMIT_SUB);
}
