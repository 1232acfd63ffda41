/*
 * hooks.h
 *		The one place at which the library takes part in the server's transactions and utility statements.
 *
 * Which modules do, in which order, is in the tables of hooks.c.
 */
#ifndef QUEUE_JOBS_HOOKS_H
#define QUEUE_JOBS_HOOKS_H

extern void hooks_init(void);

#endif
