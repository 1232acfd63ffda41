/*
 * feature_flag.c
 *		What a flag (set_flag.c) says of a job.
 *
 * A flag is on for a share of the jobs, by a hash of flag and id: a job that is put back or retried is not
 * decided upon again, and raising the percentage leaves it on where it was on.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "attribute_numbers.h"
#include "common/hashfn.h"
#include "feature_flag.h"
#include "table_rows.h"
#include "utils/builtins.h"

typedef struct FeatureFlag
{
	char	   *name;
	int			percent;
} FeatureFlag;

static void *
read_flag(HeapTuple tuple, TupleDesc descriptor)
{
	FeatureFlag *flag = palloc(sizeof(FeatureFlag));
	bool		isnull;

	flag->name = TextDatumGetCString(heap_getattr(tuple, Anum_feature_flag_name, descriptor, &isnull));
	flag->percent = DatumGetInt32(heap_getattr(tuple, Anum_feature_flag_percent, descriptor, &isnull));
	return flag;
}

static SmallTable flags = {.relation = REL_FEATURE_FLAG,.read_row = read_flag};

/* A flag that was never set is off. */
static int
flag_percent(const char *name)
{
	ListCell   *cell;

	(void) small_table_refresh(&flags);
	foreach(cell, flags.rows)
	{
		FeatureFlag *flag = lfirst(cell);

		if (strcmp(flag->name, name) == 0)
			return flag->percent;
	}
	return 0;
}

DataConsistency
job_consistency(const Worker *worker, int64 job)
{
	const char *flag = worker->feature_flag;
	uint64		hash;

	if (worker->data_consistency == CONSISTENCY_ALWAYS || flag == NULL)
		return worker->data_consistency;
	hash = hash_bytes_extended((const unsigned char *) flag, strlen(flag), (uint64) job);
	return (int) (hash % 100) < flag_percent(flag) ? worker->data_consistency : CONSISTENCY_ALWAYS;
}

