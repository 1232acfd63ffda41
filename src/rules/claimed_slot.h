/*
 * claimed_slot.h
 *		The table claimed_slot: which slots of limits claimants have, whose lease outlives the transaction
 *		that took them.
 */
#ifndef QUEUE_JOBS_CLAIMED_SLOT_H
#define QUEUE_JOBS_CLAIMED_SLOT_H

#include "job.h"

/* Columns of claimed_slot. */
enum ClaimedSlotAttribute
{
	CLAIMED_SLOT_NUMBER = 1, CLAIMED_SLOT_JOB, CLAIMED_SLOT_ATTEMPT, CLAIMED_SLOT_ATTRIBUTES = CLAIMED_SLOT_ATTEMPT
};

/* The job has no slot any more. */
extern void claimed_slots_forget(const Job *job);

/* Removes what is void: most are removed when their job ends. For the scheduler. */
extern void claimed_slots_trim(void);

#endif
