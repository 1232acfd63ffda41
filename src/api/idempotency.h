/*
 * idempotency.h
 *		Tokens, each role's own, with a stored result: of run_once(), and of events with a dedup_key.
 */
#ifndef QUEUE_JOBS_IDEMPOTENCY_H
#define QUEUE_JOBS_IDEMPOTENCY_H

#include "utils/jsonb.h"
#include "utils/timestamp.h"

#define OWN_TOKEN "queue_jobs."	/* begins those that run_once() refuses */

/* Raises an ERROR unless the parameter's text is fit for a token. */
extern void token_check(const char *token, const char *parameter);

/* Waits for another transaction that has the current user's token. Gets the lock for this one. */
extern void token_lock(const char *token);

/* The stored result of a token that has not expired; NULL if it is null, or there is none: then false. */
extern bool token_find(const char *token, Jsonb **result);

extern void token_store(const char *token, Jsonb *result, TimestampTz expires_at);

#endif
