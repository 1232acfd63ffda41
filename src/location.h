/*
 * location.h
 *		Positions in the write-ahead log.
 */
#ifndef QUEUE_JOBS_LOCATION_H
#define QUEUE_JOBS_LOCATION_H

#include "access/xlogdefs.h"

/*
 * A position at or after the commit of everything that the snapshot taken before this call can see: a replica that has
 * replayed it sees it too. InvalidXLogRecPtr in recovery.
 */
extern XLogRecPtr location_after_snapshot(void);

#endif
