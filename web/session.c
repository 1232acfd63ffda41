/*
 * session.c
 *		Who a browser is. Sessions are in memory alone: they end with the program.
 */
#include "session.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "buffer.h"

#define MAX_SESSIONS	64
#define IDLE_SECONDS	(30 * 60)
#define LIFE_SECONDS	(12 * 60 * 60)
#define FAILURES_A_MINUTE 5
#define MAX_FAILED_ROLES 64

struct Session
{
	char		id[SESSION_HEX + 1];
	Viewer	   *viewer;
	time_t		started;
	time_t		used;
	int			references;		/* one of the table's own until it has ended */
};

typedef struct FailedRole
{
	char		role[64];
	time_t		since;
	int			failures;
} FailedRole;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Session *sessions[MAX_SESSIONS];
static FailedRole failed_roles[MAX_FAILED_ROLES];
static unsigned char secret[32];

static time_t
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

static void
to_hex(const unsigned char *bytes, char hex[SESSION_HEX + 1])
{
	for (int i = 0; i < SESSION_HEX / 2; i++)
	{
		hex[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
		hex[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
	}
	hex[SESSION_HEX] = '\0';
}

bool
session_init(void)
{
	return gnutls_rnd(GNUTLS_RND_KEY, secret, sizeof(secret)) == 0;
}

void
session_new_id(char id[SESSION_HEX + 1])
{
	unsigned char bytes[SESSION_HEX / 2];

	if (gnutls_rnd(GNUTLS_RND_KEY, bytes, sizeof(bytes)) != 0)
		abort();
	to_hex(bytes, id);
}

bool
session_is_id(const char *id)
{
	return id && strlen(id) == SESSION_HEX && strspn(id, "0123456789abcdef") == SESSION_HEX;
}

void
session_token(const char *id, char token[SESSION_HEX + 1])
{
	unsigned char digest[SESSION_HEX / 2];

	if (gnutls_hmac_fast(GNUTLS_MAC_SHA256, secret, sizeof(secret), id, strlen(id), digest) != 0)
		abort();
	to_hex(digest, token);
}

/* In a time that does not tell how much of it is right. */
static bool
same_hex(const char *a, const char *b)
{
	unsigned char difference = 0;

	for (int i = 0; i < SESSION_HEX; i++)
		difference |= a[i] ^ b[i];
	return difference == 0;
}

bool
session_token_matches(const char *id, const char *token)
{
	char		expected[SESSION_HEX + 1];

	if (!session_is_id(id) || !session_is_id(token))
		return false;
	session_token(id, expected);
	return same_hex(expected, token);
}

static void
release_locked(Session *session)
{
	if (--session->references > 0)
		return;
	viewer_close(session->viewer);
	free(session);
}

static bool
is_over(const Session *session)
{
	time_t		now = seconds();

	return now - session->used > IDLE_SECONDS || now - session->started > LIFE_SECONDS;
}

static void
sweep_locked(void)
{
	for (int i = 0; i < MAX_SESSIONS; i++)
		if (sessions[i] && is_over(sessions[i]))
		{
			release_locked(sessions[i]);
			sessions[i] = NULL;
		}
}

void
session_sweep(void)
{
	pthread_mutex_lock(&lock);
	sweep_locked();
	pthread_mutex_unlock(&lock);
}

bool
session_start(Viewer *viewer, char id[SESSION_HEX + 1])
{
	Session    *session = NULL;

	pthread_mutex_lock(&lock);
	sweep_locked();
	for (int i = 0; i < MAX_SESSIONS && session == NULL; i++)
		if (sessions[i] == NULL)
		{
			session = sessions[i] = allocate(sizeof(Session));
			session_new_id(session->id);
			session->viewer = viewer;
			session->started = session->used = seconds();
			session->references = 1;
			strcpy(id, session->id);
		}
	pthread_mutex_unlock(&lock);
	if (session == NULL)
		viewer_close(viewer);
	return session != NULL;
}

static int
find_locked(const char *id)
{
	for (int i = 0; i < MAX_SESSIONS; i++)
		if (sessions[i] && same_hex(sessions[i]->id, id))
			return i;
	return -1;
}

Session *
session_find(const char *id, bool is_use)
{
	Session    *session = NULL;
	int			i;

	if (!session_is_id(id))
		return NULL;
	pthread_mutex_lock(&lock);
	sweep_locked();
	i = find_locked(id);
	if (i >= 0)
	{
		session = sessions[i];
		if (is_use)
			session->used = seconds();
		session->references++;
	}
	pthread_mutex_unlock(&lock);
	return session;
}

Viewer *
session_viewer(Session *session)
{
	return session->viewer;
}

void
session_release(Session *session)
{
	pthread_mutex_lock(&lock);
	release_locked(session);
	pthread_mutex_unlock(&lock);
}

void
session_end(const char *id)
{
	int			i;

	if (!session_is_id(id))
		return;
	pthread_mutex_lock(&lock);
	i = find_locked(id);
	if (i >= 0)
	{
		release_locked(sessions[i]);
		sessions[i] = NULL;
	}
	pthread_mutex_unlock(&lock);
}

/* The role's entry; else, with make, the one whose minute began first. */
static FailedRole *
failed_role(const char *role, bool make)
{
	FailedRole *oldest = &failed_roles[0];

	for (int i = 0; i < MAX_FAILED_ROLES; i++)
	{
		if (strncmp(failed_roles[i].role, role, sizeof(failed_roles[i].role) - 1) == 0)
			return &failed_roles[i];
		if (failed_roles[i].since < oldest->since)
			oldest = &failed_roles[i];
	}
	if (!make)
		return NULL;
	memset(oldest, 0, sizeof(*oldest));
	strncpy(oldest->role, role, sizeof(oldest->role) - 1);
	oldest->since = seconds();
	return oldest;
}

bool
sign_in_allowed(const char *role)
{
	FailedRole *entry;
	bool		allowed;

	pthread_mutex_lock(&lock);
	entry = failed_role(role, false);
	allowed = entry == NULL || entry->failures < FAILURES_A_MINUTE || seconds() - entry->since >= 60;
	pthread_mutex_unlock(&lock);
	return allowed;
}

void
sign_in_failed(const char *role)
{
	FailedRole *entry;

	pthread_mutex_lock(&lock);
	entry = failed_role(role, true);
	if (seconds() - entry->since >= 60)
	{
		entry->since = seconds();
		entry->failures = 0;
	}
	entry->failures++;
	pthread_mutex_unlock(&lock);
}
