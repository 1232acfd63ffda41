/*
 * replica_read.h
 *		What a worker's read handler reads before the handler runs: from a replica that has caught up, or the
 *		primary.
 */
#ifndef QUEUE_JOBS_REPLICA_READ_H
#define QUEUE_JOBS_REPLICA_READ_H

#include "call.h"
#include "job.h"
#include "registry.h"

/*
 * Chooses where to read, for a job that an executor is running, whose attempt is counted and whose location
 * is known. Notes the choice in the job, and reads (reader->handler may be NULL: then there is nothing to
 * read). Returns false if the caller must put the job back until a replica catches up. The run's timeout is
 * armed. An ERROR is the read handler's, on the primary; one on a replica sends the job to the primary.
 */
extern bool read_for_job(CallTarget *reader, const Worker *worker, Job *job);

/* Chooses for a job that a claimant is about to get, by what is known of replicas, without asking them. */
extern bool choose_for_claim(const Worker *worker, Job *job);

/*
 * Chooses again, because the job's location has risen and it is too late to put the job back. Returns false
 * if nothing has changed.
 */
extern bool choose_again_for_claim(Job *job);

#endif
