/*
 * claimant.h
 *		What claim() and the functions for claimants have in common: how a claimant and a lease
 *		are given.
 */
#ifndef QUEUE_JOBS_CLAIMANT_H
#define QUEUE_JOBS_CLAIMANT_H

#include "fmgr.h"

#define LONGEST_WAIT (365 * USECS_PER_DAY)	/* also of a lease */

extern char *claimant_argument(FunctionCallInfo fcinfo, int arg);

/* In microseconds. */
extern int64 lease_argument(FunctionCallInfo fcinfo, int arg);

#endif
