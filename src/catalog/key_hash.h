/*
 * key_hash.h
 *		Hashes that stand for keys: of deduplication, limits and tokens.
 *
 * A role that could choose its args so that their hash is that of another role's could slow down or hold up
 * that role's jobs. So they are hashed with a seed that the database keeps to itself.
 */
#ifndef QUEUE_JOBS_KEY_HASH_H
#define QUEUE_JOBS_KEY_HASH_H

#include "utils/jsonb.h"

/* The database's seed; a dump carries it. */
extern uint64 key_hash_seed(void);

extern uint64 key_hash_text(const char *text, uint64 seed);

/* Equal for all that jsonb takes for equal. */
extern uint64 key_hash_jsonb(Jsonb *value, uint64 seed);

#endif
