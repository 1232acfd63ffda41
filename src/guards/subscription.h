/*
 * subscription.h
 *		Jobs that come by logical replication: a database whose live_job a subscription fills is a copy of
 *		another. Nothing is run, claimed or enqueued there until the subscription is dropped.
 *
 * It would be done twice, and the ids of new jobs are the publisher's to give. Once the subscription is gone,
 * or the table is not in it any more, the database goes on by itself where the other one was: new ids come
 * after those that are there.
 */
#ifndef QUEUE_JOBS_SUBSCRIPTION_H
#define QUEUE_JOBS_SUBSCRIPTION_H

#include "utility_call.h"

/* ERROR in such a database, in a read-only transaction, on a standby, and in a parallel query. */
extern void refuse_where_nothing_can_be_written(const char *function);

/* A utility statement (hooks.c). */
extern void subscription_utility(UtilityCall *call);

#endif
