/*
 * server.h
 *		HTTP: from a connection to a page and back.
 */
#ifndef QUEUE_JOBS_WEB_SERVER_H
#define QUEUE_JOBS_WEB_SERVER_H

#include <stdbool.h>
#include <sys/socket.h>

/*
 * Listens, and answers in threads of its own until server_stop(). False, with a message on stderr:
 * it cannot.
 */
extern bool server_start(const struct sockaddr *address);
extern void server_stop(void);
extern int	server_port(void);
extern bool is_loopback(const struct sockaddr *address);

#endif
