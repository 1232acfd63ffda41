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

/*
 * AES-256-GCM and HMAC-SHA-256, by OpenSSL's libcrypto.
 *
 * A sealed text is the nonce, the ciphertext and the tag, one after the other. What it is bound to is no part
 * of it: to open it takes the same.
 */

#define CIPHER_KEY_LENGTH 32
#define CIPHER_NONCE_LENGTH 12
#define CIPHER_TAG_LENGTH 16
#define CIPHER_OVERHEAD (CIPHER_NONCE_LENGTH + CIPHER_TAG_LENGTH)
#define CIPHER_MAC_LENGTH 32

/* Whether the library was built with OpenSSL. Without it, the functions below end in an ERROR. */
extern bool cipher_present(void);

/* Seals the text with a nonce of its own; "sealed" has room for length + CIPHER_OVERHEAD bytes. */
extern void cipher_seal(const uint8 *key, const char *bound_to, const uint8 *text, int length, uint8 *sealed);

/*
 * The reverse; "length" is that of what is sealed. False if it was altered, or bound to something else, or by
 * another key.
 */
extern bool cipher_open(const uint8 *key, const char *bound_to, const uint8 *sealed, int length, uint8 *text);

extern void cipher_mac(const uint8 *key, const void *data, size_t length, uint8 *mac);

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

/* Returns the newest key, with an ERROR if there is none. */
extern const EncryptionKey *encryption_key_require_newest(void);

/* The key by which duplicates are known; an ERROR if there is none. */
extern const uint8 *encryption_key_for_duplicates(void);

/* Why a version (0: the newest) is missing, as the end of a sentence. */
extern const char *encryption_key_problem(int32 version);

#endif
