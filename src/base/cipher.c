/*
 * cipher.c
 *		AES-256-GCM and HMAC-SHA-256; see cipher.h.
 */
#include "postgres.h"

#include "cipher.h"

#ifdef QUEUE_JOBS_OPENSSL

#include <openssl/evp.h>
#include <openssl/hmac.h>

bool
cipher_present(void)
{
	return true;
}

static void
cipher_fail(const char *what)
{
	elog(ERROR, "%s failed in libcrypto", what);
}

static EVP_CIPHER_CTX *
new_context(void)
{
	EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();

	if (context == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	return context;
}

/* Nothing in between ends in an ERROR, which would leak the context. */
void
cipher_seal(const uint8 *key, const char *bound_to, const uint8 *text, int length, uint8 *sealed)
{
	uint8	   *ciphertext = sealed + CIPHER_NONCE_LENGTH;
	EVP_CIPHER_CTX *context;
	int			written;
	bool		done;

	if (!pg_strong_random(sealed, CIPHER_NONCE_LENGTH))
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate a random nonce")));
	context = new_context();
	done = EVP_EncryptInit_ex(context, EVP_aes_256_gcm(), NULL, key, sealed) == 1 &&
		EVP_EncryptUpdate(context, NULL, &written, (const uint8 *) bound_to, (int) strlen(bound_to)) == 1 &&
		EVP_EncryptUpdate(context, ciphertext, &written, text, length) == 1 &&
		EVP_EncryptFinal_ex(context, ciphertext + written, &written) == 1 &&
		EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, CIPHER_TAG_LENGTH, ciphertext + length) == 1;
	EVP_CIPHER_CTX_free(context);
	if (!done)
		cipher_fail("encryption");
}

bool
cipher_open(const uint8 *key, const char *bound_to, const uint8 *sealed, int length, uint8 *text)
{
	const uint8 *ciphertext = sealed + CIPHER_NONCE_LENGTH;
	int			text_length = length - CIPHER_OVERHEAD;
	EVP_CIPHER_CTX *context;
	int			written;
	bool		done;

	if (text_length < 0)
		return false;
	context = new_context();
	done = EVP_DecryptInit_ex(context, EVP_aes_256_gcm(), NULL, key, sealed) == 1 &&
		EVP_DecryptUpdate(context, NULL, &written, (const uint8 *) bound_to,
						  (int) strlen(bound_to)) == 1 &&
		EVP_DecryptUpdate(context, text, &written, ciphertext, text_length) == 1 &&
		EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, CIPHER_TAG_LENGTH,
							unconstify(uint8 *, ciphertext) + text_length) == 1 &&
		EVP_DecryptFinal_ex(context, text + written, &written) == 1;
	EVP_CIPHER_CTX_free(context);
	return done;
}

void
cipher_mac(const uint8 *key, const void *data, size_t length, uint8 *mac)
{
	unsigned int mac_length;

	if (HMAC(EVP_sha256(), key, CIPHER_KEY_LENGTH, data, length, mac, &mac_length) == NULL)
		cipher_fail("authentication code");
}

#else							/* !QUEUE_JOBS_OPENSSL */

bool
cipher_present(void)
{
	return false;
}

static void
refuse_cipher(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("this library of queue_jobs cannot encrypt"),
			 errdetail("OpenSSL's headers were missing when it was built."),
			 errhint("Install them (libssl-dev), and build queue_jobs again.")));
}

void
cipher_seal(const uint8 *key, const char *bound_to, const uint8 *text, int length, uint8 *sealed)
{
	refuse_cipher();
}

bool
cipher_open(const uint8 *key, const char *bound_to, const uint8 *sealed, int length, uint8 *text)
{
	refuse_cipher();
	return false;
}

void
cipher_mac(const uint8 *key, const void *data, size_t length, uint8 *mac)
{
	refuse_cipher();
}

#endif
