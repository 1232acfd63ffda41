/*
 * job_row.h
 *		A job as a row of the view "job", for claim() and current_job().
 */
#ifndef QUEUE_JOBS_JOB_ROW_H
#define QUEUE_JOBS_JOB_ROW_H

#include "access/htup.h"
#include "access/tupdesc.h"
#include "job.h"
#include "lane.h"

/* The view's row type, in the current memory context. */
extern TupleDesc job_row_descriptor(void);

/* The row of a job that is executing; executor_pid is 0 for a claimant's. */
extern HeapTuple job_row(TupleDesc descriptor, const Job *job, const Lane *lane, const Worker *worker,
						 int executor_pid);

#endif
