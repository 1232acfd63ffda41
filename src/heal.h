/*
 * heal.h
 *		Self-healing: records that are pending, and have been for a while, get a job if they have none.
 */
#ifndef QUEUE_JOBS_HEAL_H
#define QUEUE_JOBS_HEAL_H

#include "utils/timestamp.h"

/* Heals what is due; returns when the next healing is, or DT_NOEND. To be called outside of a transaction. */
extern TimestampTz heal_due(TimestampTz now);

#endif
