/*
 * key_hash.c
 *		Hashes that stand for keys; see key_hash.h.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "attribute_numbers.h"
#include "catalog.h"
#include "common/hashfn.h"
#include "key_hash.h"
#include "snapshot.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* Columns of hash_seed. */
/* Of several the oldest: CREATE EXTENSION makes one, and then a restore brings that of the dump. */
static uint64
read_seed(void)
{
	Relation	rel = table_open(catalog_relation(REL_HASH_SEED), AccessShareLock);
	Snapshot	snapshot = engine_snapshot();
	TableScanDesc scan = table_beginscan(rel, snapshot, 0, NULL);
	HeapTuple	tuple;
	uint64		seed = 0;
	TimestampTz oldest = DT_NOEND;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;
		TimestampTz made_at = DatumGetTimestampTz(
			heap_getattr(tuple, Anum_hash_seed_made_at, RelationGetDescr(rel), &isnull));

		if (made_at >= oldest)
			continue;
		oldest = made_at;
		seed = DatumGetUInt64(heap_getattr(tuple, Anum_hash_seed_seed, RelationGetDescr(rel), &isnull));
	}
	table_endscan(scan);
	engine_snapshot_end(snapshot);
	table_close(rel, AccessShareLock);
	return seed;
}

uint64
key_hash_seed(void)
{
	static uint64 seed;
	static uint64 seed_generation = 0;
	uint64		generation = catalog_generation();

	if (seed_generation != generation)
	{
		seed = read_seed();
		seed_generation = generation;
	}
	return seed;
}

uint64
key_hash_text(const char *text, uint64 seed)
{
	return hash_bytes_extended((const unsigned char *) text, strlen(text), seed);
}

uint64
key_hash_jsonb(Jsonb *value, uint64 seed)
{
	return DatumGetUInt64(
		DirectFunctionCall2(jsonb_hash_extended, JsonbPGetDatum(value), UInt64GetDatum(seed)));
}
