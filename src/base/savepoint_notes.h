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

static inline int *
savepoint_note_level(void *notes, int i, size_t size)
{
	return (int *) ((char *) notes + i * size);
}

/* The savepoint of that level is rolled back: returns how many notes are left. */
static inline int
savepoint_notes_undo(void *notes, int count, size_t size, int nest_level)
{
	while (count > 0 && *savepoint_note_level(notes, count - 1, size) >= nest_level)
		count--;
	return count;
}

/* The savepoint of that level is released: its notes belong to the level above. */
static inline void
savepoint_notes_keep(void *notes, int count, size_t size, int nest_level)
{
	for (int i = count - 1; i >= 0 && *savepoint_note_level(notes, i, size) >= nest_level; i--)
		*savepoint_note_level(notes, i, size) = nest_level - 1;
}

#endif
