/*
 * encryption_key.h
 *		The keys by which args and results are encrypted: what queue_jobs.encryption_key_command prints.
 *
 * The keys are in no table and in no file of the server's. Each process that needs one runs the command, and
 * keeps what it prints in its memory: until the configuration is loaded again, or a version is missing. It
 * waits for the command, ten seconds at most, and listens to no interrupt meanwhile.
 */
#ifndef QUEUE_JOBS_ENCRYPTION_KEY_H
#define QUEUE_JOBS_ENCRYPTION_KEY_H

#include "cipher.h"

/* while one is missing, or less often if the command is slow */
#define LOOK_FOR_KEYS_EVERY (2 * USECS_PER_SEC)

typedef struct EncryptionKey
{
	int32		version;
	uint8		key[CIPHER_KEY_LENGTH];
} EncryptionKey;

/*
 * The key for what is encrypted now, or of a version; NULL if there is none. Good until the next call here.
 */
extern const EncryptionKey *encryption_key_newest(void);
extern const EncryptionKey *encryption_key_of(int32 version);

/* The same, with an ERROR if there is none. */
extern const EncryptionKey *encryption_key_require_newest(void);

/* The key by which duplicates are known; an ERROR if there is none. */
extern const uint8 *encryption_key_for_duplicates(void);

/* Why a version (0: the newest) is missing, as the end of a sentence. */
extern const char *encryption_key_problem(int32 version);

#endif
