/*
 * definition_size.h
 *		How large the texts of a worker's definition may be, and those of all that one role defines: each
 *		session that enqueues or runs jobs reads them.
 */
#ifndef QUEUE_JOBS_DEFINITION_SIZE_H
#define QUEUE_JOBS_DEFINITION_SIZE_H

#include "fmgr.h"

#define MOST_OF_DEFINITION (100 * 1024) /* bytes */
#define MOST_OF_ROLE (10 * 1024 * 1024)

/*
 * ERROR if the texts among the call's arguments are too large, or would be with those of the definer's other
 * workers. No limit for superusers' sum.
 */
extern void definition_size_check(FunctionCallInfo fcinfo, const char *worker, Oid definer);

#endif
