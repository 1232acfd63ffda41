/*
 * subscription.h
 *		Keeps the engine from running, claiming or enqueuing in a database that is a copy of another: one
 *		whose live_job a subscription fills by logical replication. This ends when the subscription is
 *		dropped, or the table is no longer in it.
 *
 * The copy would do all work a second time, and give ids to new jobs that only the publisher may give. When
 * the subscription has ended, the database goes on by itself where the other one was: new ids come after
 * those of its jobs.
 */
#ifndef QUEUE_JOBS_SUBSCRIPTION_H
#define QUEUE_JOBS_SUBSCRIPTION_H

#include "utility_call.h"

/* Raises an ERROR in such a database, in a read-only transaction, on a standby, and in a parallel query. */
extern void refuse_where_nothing_can_be_written(const char *function);

/* A utility statement (hooks.c). */
extern void subscription_utility(UtilityCall *call);

#endif
