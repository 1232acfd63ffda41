/*
 * connections.c
 *		How long each connection may take.
 */
#include "connections.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "buffer.h"

struct Connection
{
	int			socket;
	time_t		until;			/* 0: no limit */
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

Connection *
connection_opened(int socket)
{
	Connection *connection = allocate(sizeof(Connection));

	connection->socket = socket;
	connection->until = seconds() + REQUEST_SECONDS;
	pthread_mutex_lock(&lock);
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
			shutdown(connection->socket, SHUT_RDWR);
	pthread_mutex_unlock(&lock);
}
