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
	int			slice;
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
	const KnownPlace *place = known_place(id);

	return place->id == id && place->slice == KNOWN_LIVE;
}

bool
finished_place_is_known(int64 id, int *slice)
{
	const KnownPlace *place = known_place(id);

	*slice = place->slice;
	return place->id == id && place->slice != KNOWN_LIVE;
}

void
know_place_in(int slice, int64 id, const ItemPointerData *tid)
{
	*known_place(id) = (KnownPlace)
	{
		.id = id,.slice = slice,.tid = *tid
	};
}

void
know_place(const Job *job, const ItemPointerData *tid)
{
	if (job->lease != 0 || job->cursor != NULL)
		know_place_in(KNOWN_LIVE, job->id, tid);
}

bool
fetch_known(Relation rel, int slice, int64 id, Snapshot snapshot, BlockNumber blocks, TupleTableSlot *slot)
{
	KnownPlace *place = known_place(id);

	return place->id == id && place->slice == slice && ItemPointerIsValid(&place->tid) &&
		ItemPointerGetBlockNumber(&place->tid) < blocks &&
		table_tuple_fetch_row_version(rel, &place->tid, snapshot, slot) &&
		slot_get_int64(slot, slice == KNOWN_LIVE ? Anum_live_job_id : Anum_finished_job_id) == id;
}
