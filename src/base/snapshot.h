/*
 * snapshot.h
 *		The snapshot with which the engine reads its own tables.
 */
#ifndef QUEUE_JOBS_SNAPSHOT_H
#define QUEUE_JOBS_SNAPSHOT_H

#include "utils/snapshot.h"

/*
 * A snapshot of what is committed now, and written by this transaction so far; not the caller's, which may be
 * old in REPEATABLE READ. In SERIALIZABLE it takes no predicate locks: what the engine reads is no business
 * of theirs.
 */
extern Snapshot engine_snapshot(void);
extern void engine_snapshot_end(Snapshot snapshot);

#endif
