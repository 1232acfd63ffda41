/*
 * request.h
 *		What a request says, parsed: parameters of the query and of forms, cookies, the Host
 *		header. Nothing here knows of HTTP connections or the database, so that test/fuzz.c can
 *		call all of it.
 */
#ifndef QUEUE_JOBS_WEB_REQUEST_H
#define QUEUE_JOBS_WEB_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#define MAX_PARAMS	300

typedef struct Param
{
	char	   *name;
	char	   *value;
} Param;

typedef struct Params
{
	int			count;
	Param		list[MAX_PARAMS];
} Params;

/*
 * Adds the parameters of application/x-www-form-urlencoded text. False: malformed, no UTF-8, a zero
 * byte, or too many.
 */
extern bool params_parse(Params *params, const char *text, size_t length);
extern void params_free(Params *params);
/* The first value of that name, or NULL; param_given(): NULL also if it is empty. */
extern const char *param(const Params *params, const char *name);
extern const char *param_given(const Params *params, const char *name);

/* The value of a cookie, to be freed, or NULL. */
extern char *cookie_value(const char *header, const char *name);
extern bool is_utf8(const char *text, size_t length);
extern bool parse_id(const char *text, long long *id);
/* A number of the database's; 0 if it is none. */
extern double parse_number(const char *text);
/* Whether a Host header names a loopback address, or one of the names, which a NULL ends. */
extern bool host_allowed(const char *host, const char *const *names);
/* Whether a redirect may go there: a path of this server, below the prefix. */
extern bool is_local_path(const char *path, const char *prefix);

#endif
