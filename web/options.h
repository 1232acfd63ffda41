/*
 * options.h
 *		What the command line says.
 */
#ifndef QUEUE_JOBS_WEB_OPTIONS_H
#define QUEUE_JOBS_WEB_OPTIONS_H

#include <stdbool.h>

#define MAX_HOSTS	16

typedef struct Options
{
	const char *conninfo;
	const char *listen;
	const char *prefix;			/* "", or "/path" without a slash at its end */
	const char *hosts[MAX_HOSTS + 1];	/* names that a Host header may have beside those of localhost */
	bool		login;
	bool		read_only;
	bool		hide_args;
} Options;

/* Set before the first thread starts, and never changed. */
extern Options options;

#endif
