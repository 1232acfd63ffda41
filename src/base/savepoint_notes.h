/*
 * savepoint_notes.h
 *		Notes of a transaction that end with the savepoint in which they were made, or go on with the level
 *		above.
 *
 * They are an array of structs, in the order in which they were made. Each struct begins with an int, the
 * nesting level of its note: so the notes of a level, and of deeper ones, are the last.
 */
#ifndef QUEUE_JOBS_SAVEPOINT_NOTES_H
#define QUEUE_JOBS_SAVEPOINT_NOTES_H

#include "access/xact.h"
#include "utils/memutils.h"

/* The array with room for one more of any structs. *room changes only when the memory is there. */
static inline void *
notes_with_room(void *notes, int count, int *room, size_t size)
{
	int			larger = Max(*room * 2, 16);

	if (count < *room)
		return notes;
	notes = notes ? repalloc_huge(notes, larger * size)
				  : MemoryContextAllocHuge(TopMemoryContext, larger * size);
	*room = larger;
	return notes;
}

static inline int *
savepoint_note_level(void *notes, int i, size_t size)
{
	return (int *) ((char *) notes + i * size);
}

/* The index of the first note of that level or a deeper one. */
static inline int
savepoint_notes_first(void *notes, int count, size_t size, int nest_level)
{
	while (count > 0 && *savepoint_note_level(notes, count - 1, size) >= nest_level)
		count--;
	return count;
}

/* For the callback at a savepoint's end: returns how many notes are left. */
static inline int
savepoint_notes_end(SubXactEvent event, void *notes, int count, size_t size)
{
	int			nest_level;
	int			first;

	if (count == 0)
		return 0;
	nest_level = GetCurrentTransactionNestLevel();
	first = savepoint_notes_first(notes, count, size, nest_level);
	if (event == SUBXACT_EVENT_ABORT_SUB)
		return first;
	for (int i = first; i < count; i++)
		*savepoint_note_level(notes, i, size) = nest_level - 1;
	return count;
}

#endif
