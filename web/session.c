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
#define SESSIONS_OF_ROLE 8

struct Session
{
	char		id[SESSION_HEX + 1];
	Viewer	   *viewer;
	time_t		started;
	time_t		used;
	int			references;		/* one of the table's own until it has ended */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Session *sessions[MAX_SESSIONS];
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

/* A free place; else, of a role that has as many as it may, the one that was used longest ago. -1: none. */
static int
place_locked(const char *role)
{
	int			place = -1;
	int			oldest = -1;
	int			count = 0;

	for (int i = 0; i < MAX_SESSIONS; i++)
	{
		if (sessions[i] == NULL)
			place = i;
		else if (strcmp(viewer_role(sessions[i]->viewer), role) == 0)
		{
			count++;
			if (oldest < 0 || sessions[i]->used < sessions[oldest]->used)
				oldest = i;
		}
	}
	return count >= SESSIONS_OF_ROLE ? oldest : place;
}

bool
session_start(Viewer *viewer, char id[SESSION_HEX + 1])
{
	Session    *session;
	int			place;

	pthread_mutex_lock(&lock);
	sweep_locked();
	place = place_locked(viewer_role(viewer));
	if (place >= 0)
	{
		if (sessions[place])
			release_locked(sessions[place]);
		session = sessions[place] = allocate(sizeof(Session));
		session_new_id(session->id);
		session->viewer = viewer;
		session->started = session->used = seconds();
		session->references = 1;
		strcpy(id, session->id);
	}
	pthread_mutex_unlock(&lock);
	if (place < 0)
		viewer_close(viewer);
	return place >= 0;
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
