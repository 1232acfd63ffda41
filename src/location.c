/*
 * location.c
 *		Positions in the write-ahead log.
 *
 * A position read inside the enqueuing transaction would be too early: its commit record comes later. One that is read
 * after a snapshot that sees the job is late enough.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "location.h"

/*
 * The insert position, brought back to the end of the last record: at the start of a page it points behind the page's
 * header, where an idle replica's replay position never comes.
 */
XLogRecPtr
location_after_snapshot(void)
{
	XLogRecPtr	position;
	uint64		offset;

	if (RecoveryInProgress())
		return InvalidXLogRecPtr;
	position = GetXLogInsertRecPtr();
	offset = XLogSegmentOffset(position, wal_segment_size);
	if (offset == SizeOfXLogLongPHD)
		return position - SizeOfXLogLongPHD;
	if (offset % XLOG_BLCKSZ == SizeOfXLogShortPHD)
		return position - SizeOfXLogShortPHD;
	return position;
}
