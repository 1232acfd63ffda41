/*
 * duplicates.c
 *		Counts of dropped and merged duplicates; see duplicates.h.
 */
#include "postgres.h"

#include "duplicates.h"
#include "lane_hint.h"
#include "savepoint_notes.h"
#include "shared.h"

/* The notes of the transaction, the latest last. */
typedef struct Noted
{
	int			nest_level;		/* first: savepoint_notes.h */
	int32		lane;
	LaneCounter counter;
	int32		count;
} Noted;

static SavepointNotes noted = {.size = sizeof(Noted)};

void
duplicates_note(int32 lane, LaneCounter counter)
{
	Noted	   *note = noted.count > 0 ? (Noted *) noted.notes + noted.count - 1 : NULL;

	if (!shared_present())
		return;
	if (note == NULL || note->lane != lane || note->counter != counter ||
		note->nest_level != GetCurrentTransactionNestLevel())
	{
		note = savepoint_note_add(&noted);
		note->lane = lane;
		note->counter = counter;
	}
	note->count++;
}

void
duplicates_end_transaction(bool committed)
{
	const Noted *notes = noted.notes;

	for (int i = 0; committed && i < noted.count; i++)
		lane_hint_count(notes[i].lane, notes[i].counter, notes[i].count);
	savepoint_notes_forget(&noted);
}

