/*
 * connections.h
 *		The browsers' connections, and how long each may take: libmicrohttpd knows how long one
 *		was silent, which a client that sends a byte now and then never is.
 */
#ifndef QUEUE_JOBS_WEB_CONNECTIONS_H
#define QUEUE_JOBS_WEB_CONNECTIONS_H

typedef struct Connection Connection;

#define MAX_CONNECTIONS		256
#define MAX_STRANGERS		192		/* of these, without a viewer's request: one more ends the oldest that is silent */
#define SILENCE_SECONDS		15	/* libmicrohttpd's part */
#define REQUEST_SECONDS		40	/* from its start, or the end of the request before, until a request is there */
#define REPLY_SECONDS		60	/* until the reply is taken */

extern Connection *connection_opened(int socket);
extern void connection_closed(Connection *connection);
/* A viewer's request has come by it: no stranger's connection takes its place. */
extern void connection_of_viewer(Connection *connection);
/* What it is doing: no limit while we work on its request, for the database's limits count then. */
extern void connection_reading(Connection *connection);
extern void connection_working(Connection *connection);
extern void connection_replying(Connection *connection);
/* Shuts down those that have taken too long. */
extern void connections_check(void);

#endif
