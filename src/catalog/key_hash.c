/*
 * key_hash.c
 *		Hashes that stand for keys; see key_hash.h.
 */
#include "postgres.h"

#include "catalog.h"
#include "common/hashfn.h"
#include "key_hash.h"
#include "snapshot.h"
#include "utils/builtins.h"

/* Of several the oldest: CREATE EXTENSION makes one, and then a restore brings that of the dump. */
static uint64
read_seed(void)
{
	Snapshot	snapshot = engine_snapshot();
	TableRows	rows;
	uint64		seed = 0;
	TimestampTz oldest = DT_NOEND;

	table_rows_begin(&rows, REL_HASH_SEED, snapshot);
	while (table_rows_next(&rows))
	{
		TimestampTz made_at = table_rows_time(&rows, "made_at");

		if (made_at >= oldest)
			continue;
		oldest = made_at;
		seed = (uint64) table_rows_int64(&rows, "seed");
	}
	table_rows_end(&rows);
	engine_snapshot_end(snapshot);
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
