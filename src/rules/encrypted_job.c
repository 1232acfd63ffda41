/*
 * encrypted_job.c
 *		Args, results and errors of a job as ciphertext.
 *
 * The value of an args key becomes the text "queue_jobs:encrypted:version:base64": the version of the key,
 * and what encryption_key.h seals. It is sealed by a key of the job's own, which is derived from that
 * version and the job's id, and bound to the job and the name of the args key: ciphertext that was moved to
 * another job or key cannot be opened there. What is sealed is the value's JSON text, the same on any
 * machine.
 *
 * Which jobs have ciphertext is known by Job.encrypted, and not by the look of a value. In a job that has
 * any, each text that looks like ciphertext is: one that looks so and came from a caller is encrypted, too,
 * whatever its key.
 *
 * Errors of such a job may show what its handler was given, so their texts are encrypted as well.
 *
 * Duplicates are known by a keyed hash (HMAC-SHA-256) of the clear args, which takes the place of a token in
 * the deduplication key. It has the lane's salt in it: a role that enqueues args of its own cannot find out
 * whether another's are the same. The key stays when a new version comes (encryption_key.h).
 */
#include "postgres.h"

#include "arguments.h"
#include "common/base64.h"
#include "compat.h"
#include "encrypted_job.h"
#include "encryption_key.h"
#include "lane.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/numeric.h"
#include "wakeup.h"

#define PREFIX "queue_jobs:encrypted:"
#define TOKEN_PREFIX "queue_jobs:hmac:"
#define MAX_SEALED_ERROR 7000	/* bytes of text, whose ciphertext is not longer than MAX_ERROR_LENGTH */
#define WITHOUT_KEY "(not kept: there was no encryption key)"

/* ---- texts ---- */

/* The key of one job. */
static void
derive_key(const EncryptionKey *key, int64 job, uint8 *derived)
{
	char		label[64];

	snprintf(label, sizeof(label), "queue_jobs value of job " INT64_FORMAT, job);
	cipher_mac(key->key, label, strlen(label), derived);
}

/* Returns what a ciphertext is bound to: it cannot be moved to another job or column. */
static char *
binding(int64 job, const char *what, const char *key)
{
	return psprintf("queue_jobs job " INT64_FORMAT " %s %s", job, what, key);
}

/* Encrypts a text. */
static char *
seal(int64 job, const char *bound_to, const char *text, int length)
{
	const EncryptionKey *key = encryption_key_require_newest();
	int			sealed_length = length + CIPHER_OVERHEAD;
	int			base64_length = pg_b64_enc_len(sealed_length);
	uint8	   *sealed = palloc(sealed_length);
	uint8		derived[CIPHER_KEY_LENGTH];
	char	   *result = palloc(strlen(PREFIX) + 16 + base64_length);
	int			head = sprintf(result, PREFIX "%d:", key->version);

	derive_key(key, job, derived);
	cipher_seal(derived, bound_to, (const uint8 *) text, length, sealed);
	explicit_bzero(derived, sizeof(derived));
	base64_length = pg_b64_encode((void *) sealed, sealed_length, result + head, base64_length);
	if (base64_length < 0)
		elog(ERROR, "could not encode ciphertext");
	result[head + base64_length] = '\0';
	pfree(sealed);
	return result;
}

/* Whether the value is ciphertext. */
static bool
is_sealed(const JsonbValue *value)
{
	return value->type == jbvString && value->val.string.len >= (int) strlen(PREFIX) &&
		memcmp(value->val.string.val, PREFIX, strlen(PREFIX)) == 0;
}

/* The version of its key, 0 if it has none; *base64 is where the rest begins. */
static int32
sealed_version(const JsonbValue *value, int *base64)
{
	const char *text = value->val.string.val;
	int			length = value->val.string.len;
	int64		version = 0;
	int			i = strlen(PREFIX);

	while (i < length && text[i] >= '0' && text[i] <= '9' && version <= PG_INT32_MAX)
		version = version * 10 + (text[i++] - '0');
	if (i == length || text[i] != ':' || version > PG_INT32_MAX)
		return 0;
	*base64 = i + 1;
	return (int32) version;
}

/* False if the text was altered, or is bound to something else. *text ends with a zero byte. */
static bool
open_sealed(int64 job, const char *bound_to, const JsonbValue *value, char **text)
{
	int			base64 = 0;
	int32		version = sealed_version(value, &base64);
	int			length = value->val.string.len - base64;
	const EncryptionKey *key;
	uint8		derived[CIPHER_KEY_LENGTH];
	uint8	   *sealed;
	int			sealed_length;
	bool		opened;

	if (version == 0)
		return false;
	key = encryption_key_of(version);
	if (key == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("encryption key version %d is missing", version),
				 errdetail_internal("%s", as_sentence(encryption_key_problem(version))),
				 errhint("Let the command of \"queue_jobs.encryption_key_command\" print it again.")));
	sealed_length = pg_b64_dec_len(length);
	sealed = palloc(sealed_length + 1);
	sealed_length = pg_b64_decode(value->val.string.val + base64, length, (void *) sealed, sealed_length);
	if (sealed_length < CIPHER_OVERHEAD)
		return false;
	*text = palloc(sealed_length - CIPHER_OVERHEAD + 1);
	derive_key(key, job, derived);
	opened = cipher_open(derived, bound_to, sealed, sealed_length, (uint8 *) *text);
	explicit_bzero(derived, sizeof(derived));
	(*text)[sealed_length - CIPHER_OVERHEAD] = '\0';
	pfree(sealed);
	return opened;
}

/* Clear text is not left in memory that is free for others. */
static void
forget_clear_text(char *text)
{
	explicit_bzero(text, strlen(text));
	pfree(text);
}

/* ---- values ---- */

/* Encrypts a JSON value. */
static char *
seal_value(int64 job, const char *bound_to, const JsonbValue *value)
{
	JsonbValue	copy = *value;
	Jsonb	   *jsonb = JsonbValueToJsonb(&copy);
	char	   *text = JsonbToCString(NULL, &jsonb->root, VARSIZE(jsonb));
	char	   *sealed = seal(job, bound_to, text, strlen(text));

	explicit_bzero(jsonb, VARSIZE(jsonb));
	pfree(jsonb);
	forget_clear_text(text);
	return sealed;
}

/* In place. */
static bool
open_value(int64 job, const char *bound_to, JsonbValue *value)
{
	char	   *text;

	if (!open_sealed(job, bound_to, value, &text))
		return false;
	JsonbToJsonbValue(jsonb_parse(text), value);
	forget_clear_text(text);
	return true;
}

/* A conversion of args: encrypted for a worker, or (NULL) decrypted. */
typedef struct Conversion
{
	int64		job;
	const Worker *worker;
	char	   *altered;		/* the key whose value cannot be opened, or NULL */
} Conversion;

/* Encrypts or decrypts a value, if it must be. */
static void
convert_value(Conversion *conversion, const char *what, const char *key, bool wanted, JsonbValue *value)
{
	char	   *bound_to;

	if (!wanted && !is_sealed(value))
		return;
	bound_to = binding(conversion->job, what, key);
	if (conversion->worker != NULL)
		*value = jsonb_string(seal_value(conversion->job, bound_to, value));
	else if (!open_value(conversion->job, bound_to, value))
		conversion->altered = pstrdup(key);
}

/* Encrypts or decrypts the values of an object. */
static Jsonb *
convert_object(Conversion *conversion, Jsonb *args)
{
	QjJsonbState state = {0};
	JsonbIterator *iterator = JsonbIteratorInit(&args->root);
	JsonbValue	key;
	JsonbValue	value;

	QjPushJsonb(&state, WJB_BEGIN_OBJECT, NULL);
	(void) JsonbIteratorNext(&iterator, &value, false);
	while (JsonbIteratorNext(&iterator, &key, true) == WJB_KEY)
	{
		bool		wanted = conversion->worker != NULL &&
			worker_encrypts(conversion->worker, key.val.string.val, key.val.string.len);

		(void) JsonbIteratorNext(&iterator, &value, true);
		convert_value(conversion, "args", pnstrdup(key.val.string.val, key.val.string.len), wanted, &value);
		QjPushJsonb(&state, WJB_KEY, &key);
		QjPushJsonb(&state, WJB_VALUE, &value);
	}
	QjPushJsonb(&state, WJB_END_OBJECT, NULL);
	return JsonbValueToJsonb(state.result);
}

/* Encrypts or decrypts a value as a whole. */
static Jsonb *
convert_whole(Conversion *conversion, const char *what, Jsonb *jsonb)
{
	JsonbValue	value;

	if (!JB_ROOT_IS_SCALAR(jsonb) || !JsonbExtractScalar(&jsonb->root, &value))
		JsonbToJsonbValue(jsonb, &value);
	convert_value(conversion, what, "", conversion->worker != NULL, &value);
	return JsonbValueToJsonb(&value);
}

/* Encrypts or decrypts args. */
static Jsonb *
convert_args(Conversion *conversion, Jsonb *args)
{
	return JB_ROOT_IS_OBJECT(args) ? convert_object(conversion, args)
								   : convert_whole(conversion, "all args", args);
}

/* ---- args ---- */

/* The id that the args are bound to: that of the job, or of the call that brought them (waiting.c). */
static int64
args_id(const Job *job)
{
	return job->call != 0 ? job->call : job->id;
}

void
encrypt_args(Job *job, const Worker *worker)
{
	Conversion	conversion = {.job = args_id(job), .worker = worker};
	Jsonb	   *args = DatumGetJsonbP(JsonbPGetDatum(job->args));

	if (!JB_ROOT_IS_OBJECT(args) && worker->encrypt != NULL && strcmp(worker->encrypt, ALL_KEYS) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("args must be a JSON object for worker \"%s\"", worker->name),
				 errdetail("It encrypts the values of some of their keys."),
				 errhint("Enqueue it with an object, or define the worker with encrypt => '{*}'.")));
	(void) encryption_key_require_newest();
	job->args = convert_args(&conversion, args);
	job->encrypted |= ENCRYPTED_ARGS;
}

bool
encryption_possible(void)
{
	return cipher_present() && encryption_key_newest() != NULL;
}

void
refuse_clear_args(const Worker *worker, Jsonb *args, const char *where)
{
	JsonbIterator *iterator = JsonbIteratorInit(&args->root);
	JsonbValue	key;
	JsonbIteratorToken token;

	if (worker->encrypt == NULL)
		return;
	if (!JB_ROOT_IS_OBJECT(args))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("args of %s cannot be encrypted", where),
				 errdetail("Worker \"%s\" encrypts args, and they are stored as they are.", worker->name),
				 errhint("Give an object without the keys that are encrypted, and let the handler look their values up.")));
	while ((token = JsonbIteratorNext(&iterator, &key, true)) != WJB_DONE)
		if (token == WJB_KEY && worker_encrypts(worker, key.val.string.val, key.val.string.len))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("args of %s cannot be encrypted", where),
					 errdetail("Worker \"%s\" encrypts the value of \"%.*s\", and they are stored as they are.",
							   worker->name, key.val.string.len, key.val.string.val),
					 errhint("Leave that key out, and let the handler look the value up.")));
}

/*
 * The first version that is missing of those by which the value, or one of its members, is encrypted; 0:
 * none.
 */
static int32
missing_version(Jsonb *args)
{
	JsonbIterator *iterator = JsonbIteratorInit(&args->root);
	JsonbValue	value;
	JsonbIteratorToken token;
	int32		ours = 0;		/* that was found last */

	(void) JsonbIteratorNext(&iterator, &value, false);
	while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE)
	{
		int			base64;
		int32		version;

		if (token == WJB_KEY || !is_sealed(&value))
			continue;
		version = sealed_version(&value, &base64);
		if (version == 0 || version == ours)
			continue;
		if (encryption_key_of(version) == NULL)
			return version;
		ours = version;
	}
	return 0;
}

char *
encryption_key_missing(const Job *job, const Worker *worker)
{
	int32		version = (job->encrypted & ENCRYPTED_ARGS) ? missing_version(job->args) : 0;
	bool		has_result = (job->encrypted & ENCRYPTS_RESULT) || (worker != NULL && worker->encrypt_result);

	if (version != 0)
		return psprintf("encryption key version %d is missing: %s", version, encryption_key_problem(version));
	if (has_result && encryption_key_newest() == NULL)
		return psprintf("there is no encryption key for its result: %s", encryption_key_problem(0));
	return NULL;
}

bool
pass_by_without_key(const Job *job, const Worker *worker, const Lane *lane, bool *whole_lane)
{
	if (encryption_key_missing(job, worker) == NULL)
		return false;
	*whole_lane = encryption_key_newest() == NULL;	/* there is no key at all */
	wakeup_revisit(job->lane, lane_executor_role(lane, worker), GetCurrentTimestamp() + LOOK_FOR_KEYS_EVERY);
	return true;
}

bool
decrypt_args(Job *job, char **key)
{
	Conversion	conversion = {.job = args_id(job)};
	Jsonb	   *clear;

	if (!(job->encrypted & ENCRYPTED_ARGS))
		return true;
	clear = convert_args(&conversion, job->args);
	*key = conversion.altered;
	if (conversion.altered == NULL)
		job->clear_args = clear;
	return conversion.altered == NULL;
}

/* ERROR for ciphertext that cannot be decrypted. */
static void
refuse_altered(int64 id, const char *what, const char *key)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("%s of job " INT64_FORMAT " cannot be decrypted", what, id),
			 key == NULL ? errdetail("The ciphertext was altered, or is another job's.")
			 : errdetail("The value of \"%s\" was altered, or is another job's or key's.", key),
			 errhint("Discard the job, and find out who has written to the tables of queue_jobs.")));
}

void
require_decrypted_args(Job *job)
{
	char	   *key;

	if (!decrypt_args(job, &key))
		refuse_altered(job->id, "args", key);
}

/* ---- what is stored ---- */

Jsonb *
decrypted_args(int64 id, int64 call, int16 encrypted, Jsonb *args)
{
	Job			job = {.id = id, .call = call, .encrypted = encrypted, .args = args};

	require_decrypted_args(&job);
	return job.clear_args ? job.clear_args : args;
}

Jsonb *
decrypted_result(int64 id, int16 encrypted, Jsonb *result)
{
	Conversion	conversion = {.job = id};
	Jsonb	   *clear;

	if (result == NULL || !(encrypted & ENCRYPTED_RESULT))
		return result;
	clear = convert_whole(&conversion, "result", result);
	if (conversion.altered != NULL)
		refuse_altered(id, "result", NULL);
	return clear;
}

Jsonb *
storable_result(Job *job, const Worker *worker, Jsonb *result)
{
	Conversion	conversion = {.job = job->id, .worker = worker};

	job->encrypted &= ~ENCRYPTED_RESULT;
	if (result == NULL || !(worker->encrypt_result || (job->encrypted & ENCRYPTS_RESULT)))
		return result;
	job->encrypted |= ENCRYPTED_RESULT;
	return convert_whole(&conversion, "result", result);
}

/* ---- errors ---- */

const char *
storable_error_text(const Job *job, const char *text)
{
	if (text == NULL || !(job->encrypted & ENCRYPTED_ARGS))
		return text;
	if (!encryption_possible())
		return WITHOUT_KEY;
	return seal(job->id, binding(job->id, "error", ""), text,
				pg_mbcliplen(text, strlen(text), MAX_SEALED_ERROR));
}

/* Decrypts the text of an error, if it is ciphertext. */
static void
open_error_text(int64 id, JsonbValue *value)
{
	char	   *text;

	if (!is_sealed(value))
		return;
	if (!open_sealed(id, binding(id, "error", ""), value, &text))
		refuse_altered(id, "errors", NULL);
	*value = jsonb_string(text);
}

/* An array of objects, whose members are texts. */
Jsonb *
decrypted_errors(int64 id, int16 encrypted, Jsonb *errors)
{
	QjJsonbState state = {0};
	JsonbIterator *iterator;
	JsonbValue	value;
	JsonbIteratorToken token;

	if (errors == NULL || !(encrypted & ENCRYPTED_ARGS))
		return errors;
	iterator = JsonbIteratorInit(&errors->root);
	while ((token = JsonbIteratorNext(&iterator, &value, false)) != WJB_DONE)
	{
		if (token == WJB_VALUE)
			open_error_text(id, &value);
		QjPushJsonb(&state, token, token < WJB_BEGIN_ARRAY ? &value : NULL);
	}
	return JsonbValueToJsonb(state.result);
}

/* ---- duplicates ---- */

/* Appends bytes so that no other sequence of them reads the same. */
static void
append_counted(StringInfo bytes, char type, const char *data, int length)
{
	appendStringInfo(bytes, "%c%d:", type, length);
	appendBinaryStringInfo(bytes, data, length);
}

/* So that what is equal as jsonb is the same: a number has many spellings. */
static void
append_value(StringInfo bytes, const JsonbValue *value)
{
	char	   *number;

	switch (value->type)
	{
		case jbvNull:
			appendStringInfoChar(bytes, 'n');
			break;
		case jbvBool:
			appendStringInfoChar(bytes, value->val.boolean ? 't' : 'f');
			break;
		case jbvNumeric:
			number = numeric_normalize(value->val.numeric);
			append_counted(bytes, 'd', number, strlen(number));
			break;
		case jbvString:
			append_counted(bytes, 's', value->val.string.val, value->val.string.len);
			break;
		default:
			elog(ERROR, "unexpected type of a JSON value");
	}
}

/* Appends a JSON value in a form that is the same for equal values. */
static void
append_jsonb(StringInfo bytes, Jsonb *jsonb)
{
	JsonbIterator *iterator = JsonbIteratorInit(&jsonb->root);
	JsonbValue	value;
	JsonbIteratorToken token;

	while ((token = JsonbIteratorNext(&iterator, &value, false)) != WJB_DONE)
	{
		appendStringInfoChar(bytes, (char) ('A' + token));
		if (token == WJB_KEY || token == WJB_VALUE || token == WJB_ELEM)
			append_value(bytes, &value);
	}
}

char *
encrypted_dedup_token(const Lane *lane, const Worker *worker, Jsonb *args)
{
	static const char label[] = "queue_jobs duplicates";
	StringInfoData bytes;
	uint8		key[CIPHER_MAC_LENGTH];
	uint8		mac[CIPHER_MAC_LENGTH];
	char	   *token = palloc(strlen(TOKEN_PREFIX) + 2 * CIPHER_MAC_LENGTH + 1);
	int			length = sprintf(token, TOKEN_PREFIX);

	initStringInfo(&bytes);
	appendStringInfo(&bytes, "%s\n" INT64_FORMAT "\n", worker_first_name(worker), lane->salt);
	append_jsonb(&bytes, args);
	cipher_mac(encryption_key_for_duplicates(), label, strlen(label), key);
	cipher_mac(key, bytes.data, bytes.len, mac);
	explicit_bzero(key, sizeof(key));
	explicit_bzero(bytes.data, bytes.len);
	pfree(bytes.data);
	length += (int) hex_encode((const char *) mac, CIPHER_MAC_LENGTH, token + length);
	token[length] = '\0';
	return token;
}

bool
is_encrypted_dedup_token(const char *token)
{
	return strncmp(token, TOKEN_PREFIX, strlen(TOKEN_PREFIX)) == 0;
}
