/*
 * known_place.c
 *		Where rows of jobs are; see known_place.h.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "known_place.h"
#include "live_row.h"

#define PLACES_KNOWN 1024

typedef struct KnownPlace
{
	int64		id;
	ItemPointerData tid;
} KnownPlace;

static KnownPlace *
known_place(int64 id)
{
	static KnownPlace places[PLACES_KNOWN];

	return &places[(uint64) id % PLACES_KNOWN];
}

bool
place_is_known(int64 id)
{
	return known_place(id)->id == id;
}

void
know_place(const Job *job, const ItemPointerData *tid)
{
	if (job->lease != 0 || job->cursor != NULL)
		*known_place(job->id) = (KnownPlace)
	{
		.id = job->id,.tid = *tid
	};
}

bool
fetch_known(Relation rel, int64 id, Snapshot snapshot, BlockNumber blocks, TupleTableSlot *slot)
{
	KnownPlace *place = known_place(id);

	return place->id == id && ItemPointerIsValid(&place->tid) &&
		ItemPointerGetBlockNumber(&place->tid) < blocks &&
		table_tuple_fetch_row_version(rel, &place->tid, snapshot, slot) &&
		slot_get_int64(slot, Anum_live_job_id) == id;
}
