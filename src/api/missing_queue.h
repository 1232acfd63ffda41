/*
 * missing_queue.h
 *		Says so when a queue or worker that is asked for by name does not exist: a typo, or a name without its
 *		namespace, would else be waited for in silence. It may come later, so that is no error.
 */
#ifndef QUEUE_JOBS_MISSING_QUEUE_H
#define QUEUE_JOBS_MISSING_QUEUE_H

#include "selector.h"

/*
 * A NOTICE for each name in the selector that is neither that of a queue nor of a worker, as the term says.
 * Once in a session for each name: programs that claim ask again and again.
 */
extern void notice_missing_names(const Selector *selector);

/*
 * A NOTICE if the queue or worker that a command names is not defined, and never had a job. "consequence" is
 * a sentence on what that means. For NULL there is no NOTICE.
 */
extern void notice_missing_queue(const char *queue, const char *consequence);
extern void notice_missing_worker(const char *worker, const char *consequence);

#endif
