/*
 * attempts.c
 *		Counts of tries to sign in; see attempts.h.
 *
 * The counts stand where a keyed hash of role and address says. Two that share a place are counted together,
 * and no stranger can choose with whom.
 */
#include "attempts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include "buffer.h"

#define PLACES			(1 << 18)	/* so many that two in use hardly ever share one; 6 MB if strangers use them all */
#define MINUTE			60

/* Per minute. The last two are for strangers alone: a role's from everywhere, and an address's as every role. */
static const int most[] = {5, 20, 30};

#define MOST_AT_ONCE	16
#define MOST_STRANGERS	12		/* at once: the other places are for who is known */
#define MOST_OF_ADDRESS 3		/* at once */

typedef struct AttemptCount
{
	time_t		since;			/* of its minute */
	int			tries;
	int			under_way;
	bool		known;			/* a try has succeeded */
} Count;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Count places[PLACES];
static int	under_way;
static int	strangers_under_way;

static pthread_once_t secret_once = PTHREAD_ONCE_INIT;
static unsigned char secret[32];

static void
make_secret(void)
{
	if (gnutls_rnd(GNUTLS_RND_KEY, secret, sizeof(secret)) != 0)
		abort();
}

static time_t
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

static Count *
place_of(char kind, const char *role, const char *address)
{
	unsigned char digest[32];
	Buffer		key;
	unsigned	place;

	buffer_init(&key);
	add_bytes(&key, &kind, 1);
	add_bytes(&key, role, strlen(role) + 1);
	add_bytes(&key, address, strlen(address));
	if (gnutls_hmac_fast(GNUTLS_MAC_SHA256, secret, sizeof(secret), key.data, key.length, digest) != 0)
		abort();
	buffer_free(&key);
	memcpy(&place, digest, sizeof(place));
	return &places[place % PLACES];
}

/* Its tries in this minute. */
static int
tries(Count *count)
{
	time_t		now = seconds();

	if (now - count->since >= MINUTE)
	{
		count->since = now;
		count->tries = count->under_way;
	}
	return count->tries;
}

static AttemptVerdict
judge(const Attempt *attempt)
{
	bool		too_often = false;

	for (int i = 0; i < 3; i++)
		too_often |= tries(attempt->counts[i]) >= most[i] && (i == 0 || !attempt->known);
	if (too_often)
		return ATTEMPT_TOO_OFTEN;
	if (under_way >= MOST_AT_ONCE)
		return ATTEMPT_TOO_MANY_AT_ONCE;
	if (!attempt->known && (strangers_under_way >= MOST_STRANGERS || attempt->counts[2]->under_way >= MOST_OF_ADDRESS))
		return ATTEMPT_TOO_MANY_AT_ONCE;
	return ATTEMPT_ALLOWED;
}

static void
add_try(const Attempt *attempt, int more)
{
	under_way += more;
	strangers_under_way += attempt->known ? 0 : more;
	for (int i = 0; i < 3; i++)
		attempt->counts[i]->under_way += more;
}

AttemptVerdict
attempt_begin(Attempt *attempt, const char *role, const char *address)
{
	AttemptVerdict verdict;

	pthread_once(&secret_once, make_secret);
	attempt->counts[0] = place_of('p', role, address);
	attempt->counts[1] = place_of('r', role, "");
	attempt->counts[2] = place_of('a', "", address);
	pthread_mutex_lock(&lock);
	attempt->known = attempt->counts[0]->known;
	verdict = judge(attempt);
	if (verdict == ATTEMPT_ALLOWED)
	{
		add_try(attempt, 1);
		for (int i = 0; i < 3; i++)
			attempt->counts[i]->tries++;
	}
	pthread_mutex_unlock(&lock);
	return verdict;
}

void
attempt_end(const Attempt *attempt, bool succeeded)
{
	pthread_mutex_lock(&lock);
	add_try(attempt, -1);
	for (int i = 0; succeeded && i < 3; i++)
		attempt->counts[i]->tries--;
	if (succeeded)
		attempt->counts[0]->known = true;
	pthread_mutex_unlock(&lock);
}
