/*
 * claimed_slot.h
 *		The table claimed_slot: which slots of limits claimants have, whose lease outlives the transaction
 *		that took them.
 */
#ifndef QUEUE_JOBS_CLAIMED_SLOT_H
#define QUEUE_JOBS_CLAIMED_SLOT_H

#include "attribute_numbers.h"
#include "job.h"

/* The job has no slot any more. */
extern void claimed_slots_forget(const Job *job);

/* Removes what is void: most are removed when their job ends. For the scheduler. */
extern void claimed_slots_trim(void);

#endif
