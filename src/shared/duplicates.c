/*
 * duplicates.c
 *		Counts of dropped and merged duplicates; see duplicates.h.
 */
#include "postgres.h"

#include "access/xact.h"
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

static Noted *noted = NULL;
static int	noted_count = 0;
static int	noted_size = 0;

void
duplicates_note(int32 lane, LaneCounter counter)
{
	int			nest_level = GetCurrentTransactionNestLevel();

	if (!shared_present())
		return;
	if (noted_count > 0)
	{
		Noted	   *last = &noted[noted_count - 1];

		if (last->lane == lane && last->counter == counter && last->nest_level == nest_level)
		{
			last->count++;
			return;
		}
	}
	noted = notes_with_room(noted, noted_count, &noted_size, sizeof(Noted));
	noted[noted_count++] = (Noted)
	{
		.nest_level = nest_level, .lane = lane, .counter = counter, .count = 1
	};
}

void
duplicates_end_savepoint(SubXactEvent event)
{
	noted_count = savepoint_notes_end(event, noted, noted_count, sizeof(Noted));
}

void
duplicates_end_transaction(bool committed)
{
	for (int i = 0; committed && i < noted_count; i++)
		lane_hint_count(noted[i].lane, noted[i].counter, noted[i].count);
	noted_count = 0;
}

