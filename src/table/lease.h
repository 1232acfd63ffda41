/*
 * lease.h
 *		Until when a job that was started is its claimant's, or an executor's: what is written to its row, and
 *		the claimant's heartbeats.
 */
#ifndef QUEUE_JOBS_LEASE_H
#define QUEUE_JOBS_LEASE_H

#include "job.h"

/* From when a claimant's lease counts: its claim, or the claimant's last heartbeat. */
extern TimestampTz lease_since(const Job *job);

/* The latest heartbeat of a claimant by that name, as that role; NO_TIME if there was none. */
extern TimestampTz lease_last_heartbeat(const char *claimant, Oid role);

/* When a lease of so many microseconds ends. SQL may have written one of any length to the row. */
extern TimestampTz lease_end(TimestampTz since, int64 lease);

/* A lease that is written to the row and has not run out. */
extern bool lease_holds(const Job *job, TimestampTz now, TimestampTz *until);

#endif
