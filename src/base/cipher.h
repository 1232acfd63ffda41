/*
 * cipher.h
 *		AES-256-GCM and HMAC-SHA-256, by OpenSSL's libcrypto.
 *
 * A sealed text is the nonce, the ciphertext and the tag, one after the other. What it is bound to is no part
 * of it: to open it takes the same.
 */
#ifndef QUEUE_JOBS_CIPHER_H
#define QUEUE_JOBS_CIPHER_H

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

#endif
