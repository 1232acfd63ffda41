/*
 * commit.h
 *		The one place at which the library takes part in the server's transactions and utility statements.
 *
 * Which modules do, in which order, is in the tables of commit.c.
 */
#ifndef QUEUE_JOBS_COMMIT_H
#define QUEUE_JOBS_COMMIT_H

extern void commit_init(void);

#endif
