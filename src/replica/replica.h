/*
 * replica.h
 *		Replicas: which there are, and what is known of them, by all processes together.
 */
#ifndef QUEUE_JOBS_REPLICA_H
#define QUEUE_JOBS_REPLICA_H

#include "access/xlogdefs.h"
#include "call.h"
#include "job.h"
#include "nodes/pg_list.h"
#include "registry.h"
#include "replica_connection.h"

/* The replicas that may be used, as "Replica *"; good until the next call. */
extern List *replica_list(void);

/* Asks the scheduler to find out how far the replicas have got. */
extern void replica_request_news(void);

/* Whether the scheduler was asked to. */
extern bool replica_news_requested(void);

/* ---- reads ---- */

/*
 * ---- Reading before the handler runs: by the worker's read handler, from a replica that has caught up, or
 * from the primary ----
 */

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
