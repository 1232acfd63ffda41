/*
 * assets.h
 *		Style sheet and script, which the Makefile puts into the program.
 */
#ifndef QUEUE_JOBS_WEB_ASSETS_H
#define QUEUE_JOBS_WEB_ASSETS_H

#include <stddef.h>

typedef struct Asset
{
	const char *type;
	const unsigned char *bytes;
	size_t		length;
} Asset;

extern const Asset asset_style;
extern const Asset asset_script;
/* Changes with either: part of their addresses. */
extern const char asset_version[];

#endif
