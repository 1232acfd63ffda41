/*
 * attempts.h
 *		How often a role, and an address, may try to sign in.
 *
 * A try counts as a failure from its beginning until it has succeeded, so that tries at once are as many as
 * tries one after the other. Nothing that is counted makes room for something else within its minute.
 *
 * Who has signed in as a role from an address is known there: what strangers do elsewhere, to that role or at
 * all, does not keep it out.
 */
#ifndef QUEUE_JOBS_WEB_ATTEMPTS_H
#define QUEUE_JOBS_WEB_ATTEMPTS_H

#include <stdbool.h>

typedef enum AttemptVerdict
{
	ATTEMPT_ALLOWED,			/* attempt_end() must follow */
	ATTEMPT_TOO_OFTEN,			/* of the role, or from the address, in this minute */
	ATTEMPT_TOO_MANY_AT_ONCE
} AttemptVerdict;

/* A try that is under way. */
typedef struct Attempt
{
	struct AttemptCount *counts[3];	/* of the role from the address, of the role, of the address */
	bool		known;
} Attempt;

extern AttemptVerdict attempt_begin(Attempt *attempt, const char *role, const char *address);
extern void attempt_end(const Attempt *attempt, bool succeeded);

#endif
