/*
 * savepoint_notes.h
 *		Notes of a transaction that end with the savepoint in which they were made, or go on with the level
 *		above.
 *
 * A list has structs of one kind in the order in which they were made. Each struct begins with an int, the
 * nesting level of its note: so the notes of a level, and of deeper ones, are the last. When a savepoint is
 * released, its notes become those of the level above; when it is rolled back, they are forgotten. What ends
 * with the transaction is for the module that has the list.
 */
#ifndef QUEUE_JOBS_SAVEPOINT_NOTES_H
#define QUEUE_JOBS_SAVEPOINT_NOTES_H

#include "access/xact.h"

typedef struct SavepointNotes
{
	Size		size;			/* of one note */
	/*
	 * NULL, or called when a savepoint is rolled back, for as long as the list still has its notes: they are
	 * those from "first" on. Not called for a list that has none at all.
	 */
	void		(*rolled_back) (int first);
	bool		keeps;			/* its module itself forgets what is rolled back, when the locks are free */

	void	   *notes;
	int			count;
	int			room;
	bool		known;			/* among all lists, as it has had notes */
	struct SavepointNotes *next;	/* of these */
} SavepointNotes;

/* Adds a note of the present level to the list; all else in it is zero. */
extern void *savepoint_note_add(SavepointNotes *list);

/* The index of the first note of that level or a deeper one. */
extern int	savepoint_notes_first(const SavepointNotes *list, int nest_level);

/* For the end of the transaction: the list is empty. */
extern void savepoint_notes_forget(SavepointNotes *list);

/* When a savepoint is released or rolled back (hooks.c): all lists. */
extern void savepoint_notes_event(SubXactEvent event);

#endif
