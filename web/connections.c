/*
 * connections.c
 *		How long each connection may take.
 */
#include "connections.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "buffer.h"

struct Connection
{
	int			socket;
	time_t		until;			/* 0: no limit */
	bool		is_viewers;
	bool		has_ended;
	Connection *next;
	Connection *previous;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Connection *first;

static time_t
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

static void
end_locked(Connection *connection)
{
	connection->has_ended = true;
	shutdown(connection->socket, SHUT_RDWR);
}

/* The list begins with the latest. */
static void
make_room_locked(void)
{
	Connection *oldest = NULL;
	int			strangers = 0;

	for (Connection *connection = first; connection; connection = connection->next)
		if (!connection->is_viewers && !connection->has_ended)
		{
			strangers++;
			if (connection->until != 0)
				oldest = connection;
		}
	if (strangers >= MAX_STRANGERS && oldest)
		end_locked(oldest);
}

Connection *
connection_opened(int socket)
{
	Connection *connection = allocate(sizeof(Connection));

	connection->socket = socket;
	connection->until = seconds() + REQUEST_SECONDS;
	pthread_mutex_lock(&lock);
	make_room_locked();
	connection->next = first;
	if (first)
		first->previous = connection;
	first = connection;
	pthread_mutex_unlock(&lock);
	return connection;
}

/* libmicrohttpd closes the socket after this, so that none is shut down which is another's by then. */
void
connection_closed(Connection *connection)
{
	pthread_mutex_lock(&lock);
	if (connection->previous)
		connection->previous->next = connection->next;
	else
		first = connection->next;
	if (connection->next)
		connection->next->previous = connection->previous;
	pthread_mutex_unlock(&lock);
	free(connection);
}

void
connection_of_viewer(Connection *connection)
{
	if (connection == NULL)
		return;
	pthread_mutex_lock(&lock);
	connection->is_viewers = true;
	pthread_mutex_unlock(&lock);
}

static void
set_until(Connection *connection, time_t until)
{
	if (connection == NULL)
		return;
	pthread_mutex_lock(&lock);
	connection->until = until;
	pthread_mutex_unlock(&lock);
}

void
connection_reading(Connection *connection)
{
	set_until(connection, seconds() + REQUEST_SECONDS);
}

void
connection_working(Connection *connection)
{
	set_until(connection, 0);
}

void
connection_replying(Connection *connection)
{
	set_until(connection, seconds() + REPLY_SECONDS);
}

void
connections_check(void)
{
	time_t		now = seconds();

	pthread_mutex_lock(&lock);
	for (Connection *connection = first; connection; connection = connection->next)
		if (connection->until != 0 && connection->until <= now)
			end_locked(connection);
	pthread_mutex_unlock(&lock);
}
