/*
 * cache.c
 *		Answers of the last second.
 */
#include "cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buffer.h"

#define CACHE_SIZE		512
#define FRESH_SECONDS	1.0
#define KEPT_SECONDS	5.0		/* then its memory is freed */

struct Cached
{
	Buffer		key;			/* data NULL: not in use */
	Answer	   *answer;
	bool		running;		/* a thread is asking */
	unsigned	generation;		/* of cache_forget() when it began to */
	double		answered;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;
static Cached entries[CACHE_SIZE];
static unsigned generation;

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

void
answer_release(Answer *answer)
{
	if (__atomic_sub_fetch(&answer->references, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	PQclear(answer->result);
	free(answer->message);
	free(answer->detail);
	free(answer->hint);
	free(answer->notices);
	free(answer);
}

/* Each part with its zero byte; NULL and the empty text differ. */
static void
make_key(Buffer *key, const char *role, const char *sql, int count, const char *const *values)
{
	buffer_init(key);
	add_bytes(key, role, strlen(role) + 1);
	add_bytes(key, sql, strlen(sql) + 1);
	for (int i = 0; i < count; i++)
		if (values[i])
		{
			add_bytes(key, "=", 1);
			add_bytes(key, values[i], strlen(values[i]) + 1);
		}
		else
			add_bytes(key, "-", 1);
}

static Cached *
find_entry(const Buffer *key)
{
	for (int i = 0; i < CACHE_SIZE; i++)
		if (entries[i].key.data && entries[i].key.length == key->length &&
			memcmp(entries[i].key.data, key->data, key->length) == 0)
			return &entries[i];
	return NULL;
}

static void
clear_entry(Cached *entry)
{
	if (entry->answer)
		answer_release(entry->answer);
	entry->answer = NULL;
	buffer_free(&entry->key);
}

/* Frees what is old, and returns a place, or NULL if all are in use. */
static Cached *
free_entry(void)
{
	Cached	   *oldest = NULL;
	double		old = now() - KEPT_SECONDS;

	for (int i = 0; i < CACHE_SIZE; i++)
	{
		Cached	   *entry = &entries[i];

		if (entry->key.data && !entry->running && entry->answered < old)
			clear_entry(entry);
		if (!entry->running && (oldest == NULL || entry->key.data == NULL ||
								(oldest->key.data && entry->answered < oldest->answered)))
			oldest = entry;
	}
	if (oldest && oldest->key.data)
		clear_entry(oldest);
	return oldest;
}

/* Whether the entry's answer may be given; waits for the thread that is asking. */
static bool
wait_for_answer(const Buffer *key)
{
	Cached	   *entry;

	while ((entry = find_entry(key)) != NULL && entry->running && entry->generation == generation)
		pthread_cond_wait(&answered, &lock);
	return entry && !entry->running && entry->generation == generation && now() - entry->answered < FRESH_SECONDS;
}

Cached *
cache_find(const char *role, const char *sql, int count, const char *const *values, Answer **answer)
{
	Buffer		key;
	Cached	   *entry;

	make_key(&key, role, sql, count, values);
	*answer = NULL;
	pthread_mutex_lock(&lock);
	if (wait_for_answer(&key))
	{
		*answer = find_entry(&key)->answer;
		__atomic_add_fetch(&(*answer)->references, 1, __ATOMIC_ACQ_REL);
		pthread_mutex_unlock(&lock);
		buffer_free(&key);
		return NULL;
	}
	entry = find_entry(&key);
	/* One that began before a change is still running: this one is asked beside it. */
	if (entry && entry->running)
		entry = NULL;
	else
	{
		if (entry)
			clear_entry(entry);
		else
			entry = free_entry();
	}
	if (entry)
	{
		entry->key = key;
		entry->running = true;
		entry->generation = generation;
	}
	pthread_mutex_unlock(&lock);
	if (entry == NULL)
		buffer_free(&key);
	return entry;
}

void
cache_fill(Cached *place, Answer *answer)
{
	if (place == NULL)
		return;
	__atomic_add_fetch(&answer->references, 1, __ATOMIC_ACQ_REL);
	pthread_mutex_lock(&lock);
	place->answer = answer;
	place->answered = now();
	place->running = false;
	pthread_cond_broadcast(&answered);
	pthread_mutex_unlock(&lock);
}

void
cache_forget(void)
{
	pthread_mutex_lock(&lock);
	generation++;
	pthread_mutex_unlock(&lock);
}
