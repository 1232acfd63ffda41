/*
 * route.h
 *		Which page answers a request, and whether it may be asked for.
 */
#ifndef QUEUE_JOBS_WEB_ROUTE_H
#define QUEUE_JOBS_WEB_ROUTE_H

#include "page.h"

/* What of a request's headers counts. NULL: it is not there. */
typedef struct Headers
{
	const char *host;
	const char *cookie;
	const char *content_type;
	const char *fetch_site;
	const char *refresh;		/* the script's own, which no viewer has asked for */
	const char *address;		/* where it comes from, never NULL */
	char	   *user;			/* Authorization: Basic */
	char	   *password;
} Headers;

/* Answers it. uri: as it was sent; body: NULL but for POST. */
extern void route(Page *page, const Headers *headers, const char *uri, const char *body, size_t length);
extern void page_init(Page *page);
extern void page_free(Page *page);

#endif
