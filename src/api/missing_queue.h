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

/* The same for the queue that is paused. */
extern void notice_missing_paused_queue(const char *queue);

#endif
