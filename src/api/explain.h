/*
 * explain.h
 *		What keeps a job from running now, for explain_job() and the view "job".
 *
 * The answer holds for a moment only, and nothing relies on it. Nothing is locked to find it out, and
 * nothing is written: it can be asked on a standby, too.
 *
 * A reason is a word, which programs may compare, and a sentence; wait_reasons.h has them, and their order.
 */
#ifndef QUEUE_JOBS_EXPLAIN_H
#define QUEUE_JOBS_EXPLAIN_H

#include "lane.h"
#include "live_table.h"

#define OTHERS_GO_FIRST "other jobs of its queue go first"

typedef struct Reason
{
	WaitReason	reason;
	char	   *sentence;		/* what waits_for shows */
	char	   *more;			/* which session has what it waits for, or NULL */
} Reason;

/* The job that explain_job() is asked about, and what has been read of it so far. */
typedef struct Subject
{
	LiveTable  *table;
	TupleTableSlot *slot;		/* shows the job's row */
	Job			job;
	const Lane *lane;
	Worker	   *worker;			/* or NULL */
	TimestampTz now;
} Subject;

typedef struct Reasons
{
	bool		all;			/* not the first one only */
	bool		over;			/* that is all there is to say */
	List	   *list;			/* of Reason */
} Reasons;

/* For which jobs that a statement asks about a check finds the same. */
typedef enum ReasonScope
{
	SHOWN_AS_STATE,				/* the view shows it as the job's state: waits_for() is not asked */
	OF_JOB,						/* for no other job */
	OF_LIMITS,					/* jobs of the lane that its worker's limits count under the same key */
	OF_LANE,
	OF_POSITION,				/* jobs of the lane, each by its position */
} ReasonScope;

typedef struct ReasonCheck
{
	void		(*check) (const Subject *subject, Reasons *reasons);
	ReasonScope scope;
} ReasonCheck;

/*
 * The next check of all, in the order of the reasons that they find: of reason *next or a later one; *next,
 * zero at first, is moved behind it. NULL: no more.
 */
extern const ReasonCheck *reason_next_check(WaitReason *next);

/* lane and worker from subject->job, which is set already. */
extern void set_subject(Subject *subject, LiveTable *table, TupleTableSlot *slot);

/* Whether it has been put aside, as its key was at the limit (park.h). */
extern bool is_parked(const Job *job);

/*
 * Counts the jobs of the lane before that place that no transaction has, up to "most", among the first
 * thousand; *first becomes the place of the first of them, or highest_position.
 */
extern int	count_before(const Subject *subject, const LanePosition *end, int most, LanePosition *first);

#endif
