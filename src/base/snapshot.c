/*
 * snapshot.c
 *		The snapshot with which the engine reads its own tables; see snapshot.h.
 */
#include "postgres.h"

#include "access/xact.h"
#include "snapshot.h"
#include "utils/snapmgr.h"

Snapshot
engine_snapshot(void)
{
	if (IsolationIsSerializable())
		return SnapshotSelf;
	return RegisterSnapshot(GetLatestSnapshot());
}

void
engine_snapshot_end(Snapshot snapshot)
{
	if (snapshot != SnapshotSelf)
		UnregisterSnapshot(snapshot);
}
