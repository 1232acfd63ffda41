/*
 * encryption_key.c
 *		The keys by which args and results are encrypted.
 *
 * The command prints lines "version key", the key as 64 hexadecimal digits. The highest version is for what
 * is encrypted now, the others are for what has been. Duplicates are known by the key of a line "dedup key",
 * or without one by that of the lowest version, so that a new version changes nothing for them. Empty lines
 * and lines that begin with "#" are left out.
 *
 * If the command fails, takes too long, or prints something else, the keys that are known stay. No message
 * shows what it has printed.
 */
#include "postgres.h"

#include <ctype.h>
#include <errno.h>

#include "arguments.h"
#include "encryption_key.h"
#include "lib/stringinfo.h"
#include "settings.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#ifdef QUEUE_JOBS_OPENSSL

#include <openssl/evp.h>
#include <openssl/hmac.h>

bool
cipher_present(void)
{
	return true;
}

/* ERROR for a failure of the library. */
static void
cipher_fail(const char *what)
{
	elog(ERROR, "%s failed in libcrypto", what);
}

/* Returns a context of the library, for a cipher. */
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

/* ERROR in a build without OpenSSL. */
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

#define MAX_KEYS 1000
#define MAX_LINE 256			/* bytes */
#define DEDUP_VERSION 0
#define NO_COMMAND "\"queue_jobs.encryption_key_command\" is not set"
#define LOG_AGAIN_AFTER USECS_PER_MINUTE
#define LONGEST_RUN 10			/* seconds that the command may take */
/* times as long as it took, so that processes that wait for a slow one do other work, too */
#define RUNS_APART 10

typedef struct Keys
{
	int			count;
	EncryptionKey keys[MAX_KEYS];	/* in no order */
} Keys;

static Keys *known = NULL;		/* or NULL */
static char *problem = NULL;	/* of the latest look, or NULL */
static TimestampTz read_at = 0; /* when the latest look ended */
static int64 again_after = 0;	/* microseconds from then on */
static TimestampTz of_reload = 0;	/* PgReloadTime of the latest look */

/* ---- what the command prints ---- */

/* hex_decode() is left no digit to complain of: its message would show part of the key. */
static bool
parse_key(const char *text, uint8 *key)
{
	size_t		digits = strspn(text, "0123456789abcdefABCDEF");

	if (digits != 2 * CIPHER_KEY_LENGTH || text[digits + strspn(text + digits, " \t\r\n")] != '\0')
		return false;
	(void) hex_decode(text, digits, (char *) key);
	return true;
}

/* "version key": false if the line is none. */
static bool
parse_line(char *line, EncryptionKey *key)
{
	size_t		length = strcspn(line, " \t");
	char	   *end;
	long		version;

	if (length == strlen("dedup") && strncmp(line, "dedup", length) == 0)
		key->version = DEDUP_VERSION;
	else
	{
		errno = 0;
		version = strtol(line, &end, 10);
		if (errno != 0 || end != line + length || !isdigit((unsigned char) line[0]) || version < 1 ||
			version > PG_INT32_MAX)
			return false;
		key->version = (int32) version;
	}
	line += length;
	return parse_key(line + strspn(line, " \t"), key->key);
}

/* Returns the key of that version, or NULL. */
static const EncryptionKey *
find_key(const Keys *keys, int32 version)
{
	for (int i = 0; keys != NULL && i < keys->count; i++)
		if (keys->keys[i].version == version)
			return &keys->keys[i];
	return NULL;
}

/* Adds the line's key; what is wrong with the line, or NULL. */
static const char *
add_line(Keys *keys, char *line)
{
	EncryptionKey key;
	const char *wrong = NULL;

	if (line[strspn(line, " \t\r\n")] == '\0' || line[0] == '#')
		return NULL;
	if (!parse_line(line, &key))
		wrong = "is not a version and a key of 64 hexadecimal digits";
	else if (find_key(keys, key.version) != NULL)
		wrong = "has a version that another line has";
	else if (keys->count == MAX_KEYS)
		wrong = "is one too many";
	else
		keys->keys[keys->count++] = key;
	explicit_bzero(&key, sizeof(key));
	return wrong;
}

/* Wipes and frees keys. */
static void
forget_keys(Keys *keys)
{
	if (keys == NULL)
		return;
	explicit_bzero(keys, sizeof(Keys));
	free(keys);
}

/* ---- reading ---- */

/*
 * Reads the lines that the command prints. Returns what is wrong with them, in the current memory context;
 * NULL: nothing.
 */
static char *
read_lines(FILE *pipe, Keys *keys)
{
	char		line[MAX_LINE];
	const char *wrong = NULL;
	int			number = 0;
	int			versions = 0;

	while (wrong == NULL && fgets(line, sizeof(line), pipe) != NULL)
	{
		number++;
		wrong = add_line(keys, line);
	}
	explicit_bzero(line, sizeof(line));
	if (wrong != NULL)
		return psprintf("line %d of what \"queue_jobs.encryption_key_command\" prints %s", number, wrong);
	for (int i = 0; i < keys->count; i++)
		versions += keys->keys[i].version != DEDUP_VERSION;
	return versions == 0 ? pstrdup("\"queue_jobs.encryption_key_command\" prints no key") : NULL;
}

/*
 * The process that waits for the command listens to no interrupt meanwhile. So the command is killed after a
 * while, with all that it has started.
 */
static char *
with_bound(const char *command)
{
	StringInfoData line;

	initStringInfo(&line);
	appendStringInfo(&line, "timeout -s KILL %d /bin/sh -c '", LONGEST_RUN);
	for (; *command != '\0'; command++)
	{
		if (*command == '\'')
			appendStringInfoString(&line, "'\\'");
		appendStringInfoChar(&line, *command);
	}
	appendStringInfoChar(&line, '\'');
	return line.data;
}

/* The stream's buffer is ours, so that no key stays in it. */
static char *
run_command(const char *command, Keys *keys)
{
	char		buffer[BLCKSZ];
	TimestampTz began = GetCurrentTimestamp();
	FILE	   *pipe = OpenPipeStream(with_bound(command), "r");
	char	   *wrong;
	int			status;

	if (pipe == NULL)
		return psprintf("\"queue_jobs.encryption_key_command\" could not be run: %s", strerror(errno));
	setvbuf(pipe, buffer, _IOFBF, sizeof(buffer));
	wrong = read_lines(pipe, keys);
	while (fread(buffer, 1, 1, pipe) == 1)
		;						/* the command must come to its own end, and not to one by SIGPIPE */
	status = ClosePipeStream(pipe);
	explicit_bzero(buffer, sizeof(buffer));
	if (status != 0 && GetCurrentTimestamp() - began >= LONGEST_RUN * USECS_PER_SEC)
		return psprintf("\"queue_jobs.encryption_key_command\" did not end within %d seconds, and was killed", LONGEST_RUN);
	if (status != 0)
		return psprintf("\"queue_jobs.encryption_key_command\" failed: %s",
						status == -1 ? strerror(errno) : wait_result_to_str(status));
	return wrong;
}

/* All processes that need a key would say the same, again and again. */
static void
note_problem(const char *text)
{
	static TimestampTz logged_at = 0;
	TimestampTz now = GetCurrentTimestamp();
	bool		is_new = text != NULL && (problem == NULL || strcmp(problem, text) != 0);
	char	   *copy = text ? MemoryContextStrdup(TopMemoryContext, text) : NULL;

	if (problem != NULL)
		pfree(problem);
	problem = copy;
	if (text == NULL || (!is_new && now - logged_at < LOG_AGAIN_AFTER))
		return;
	logged_at = now;
	ereport(LOG, (errmsg("no encryption keys could be read: %s", text)));
}

/* Notes when to look for keys again: the longer the command took, the later. */
static void
has_looked(TimestampTz began)
{
	of_reload = PgReloadTime;
	read_at = GetCurrentTimestamp();
	again_after = Max(LOOK_FOR_KEYS_EVERY, Min(read_at - began, LONGEST_RUN * USECS_PER_SEC) * RUNS_APART);
}

/* Runs the command that prints the keys, and keeps what it printed. */
static void
read_keys(void)
{
	TimestampTz began = GetCurrentTimestamp();
	Keys	   *keys;
	char	   *wrong;

	if (queue_jobs_encryption_key_command[0] == '\0')
	{
		forget_keys(known);
		known = NULL;
		if (problem != NULL)
			pfree(problem);
		problem = MemoryContextStrdup(TopMemoryContext, NO_COMMAND);
		has_looked(began);
		return;
	}
	keys = calloc(1, sizeof(Keys));
	if (keys == NULL)
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	wrong = run_command(queue_jobs_encryption_key_command, keys);
	if (wrong == NULL)
	{
		Keys	   *before = known;

		known = keys;
		keys = before;
	}
	forget_keys(keys);
	note_problem(wrong);
	has_looked(began);
}

/* Reads the keys if this process has not, or the configuration was reloaded. */
static void
look_for_keys(void)
{
	if (read_at == 0 || of_reload != PgReloadTime)
		read_keys();
}

/* Something is missing: looks again, but not over and over. True if it did. */
static bool
look_for_keys_again(void)
{
	TimestampTz now = GetCurrentTimestamp();

	if (now >= read_at && now - read_at < again_after)
		return false;
	read_keys();
	return true;
}

/* ---- asked for ---- */

/* Returns the newest of the known keys, or NULL. */
static const EncryptionKey *
newest(void)
{
	const EncryptionKey *best = NULL;

	for (int i = 0; known != NULL && i < known->count; i++)
		if (best == NULL || known->keys[i].version > best->version)
			best = &known->keys[i];
	return best;
}

const EncryptionKey *
encryption_key_newest(void)
{
	const EncryptionKey *key;

	look_for_keys();
	key = newest();
	return key == NULL && look_for_keys_again() ? newest() : key;
}

const EncryptionKey *
encryption_key_of(int32 version)
{
	const EncryptionKey *key;

	look_for_keys();
	key = find_key(known, version);
	return key == NULL && look_for_keys_again() ? find_key(known, version) : key;
}

const EncryptionKey *
encryption_key_require_newest(void)
{
	const EncryptionKey *key = encryption_key_newest();

	if (key == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("there is no encryption key"),
				 errdetail_internal("%s", as_sentence(encryption_key_problem(0))),
				 errhint("Set \"queue_jobs.encryption_key_command\" to a command that prints a line \"version key\", the key as 64 hexadecimal digits.")));
	return key;
}

const uint8 *
encryption_key_for_duplicates(void)
{
	const EncryptionKey *lowest = encryption_key_require_newest();

	for (int i = 0; i < known->count; i++)	/* DEDUP_VERSION is below all others */
		if (known->keys[i].version < lowest->version)
			lowest = &known->keys[i];
	return lowest->key;
}

const char *
encryption_key_problem(int32 version)
{
	if (problem != NULL)
		return problem;
	return version == 0 ? "no key was printed"
		: "\"queue_jobs.encryption_key_command\" prints no such version";
}
