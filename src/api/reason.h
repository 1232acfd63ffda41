/*
 * reason.h
 *		What keeps a job from running now, for explain_job() and the view "job".
 *
 * The answer holds for a moment only, and nothing relies on it. Nothing is locked to find it out, and
 * nothing is written: it can be asked on a standby, too.
 *
 * A reason is a word, which programs may compare, and a sentence. The checks find them in the order in which
 * they would keep a job from running: first what is true of the job alone, then of its lane, of the processes
 * that would run it, and of those jobs that go first.
 */
#ifndef QUEUE_JOBS_REASON_H
#define QUEUE_JOBS_REASON_H

#include "lane.h"
#include "live_table.h"

#define OTHERS_GO_FIRST "other jobs of its queue go first"
#define ABOUT_TO_BE_STARTED "it is about to be started"

typedef struct Reason
{
	const char *word;
	char	   *sentence;		/* what waits_for shows */
	char	   *more;			/* which session has what it waits for, or NULL */
} Reason;

/* What is being asked about. */
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
	List	   *list;			/* of Reason */
} Reasons;

typedef void (*Check) (const Subject *subject, Reasons *reasons);

/* lane and worker from subject->job, which is set already. */
extern void set_subject(Subject *subject, LiveTable *table, TupleTableSlot *slot);

/* All reasons that there are. */
extern void find_reasons(const Subject *subject, Reasons *reasons);
extern void add_reason(Reasons *reasons, const char *word, char *sentence, char *more);
extern char *time_text(TimestampTz at);

/* Other jobs, or a signal. */
extern void check_waits(const Subject *subject, Reasons *reasons);

/* Open transactions that have it, or were told that it stands for what they enqueued. */
extern void check_holders(const Subject *subject, Reasons *reasons);

/* until_executed: one of its key runs. */
extern void check_key(const Subject *subject, Reasons *reasons);

/* A key that its run needs is missing. */
extern void check_encryption(const Subject *subject, Reasons *reasons);

/* Its lane, and the processes. */
extern void check_lane(const Subject *subject, Reasons *reasons);
extern void check_engine(const Subject *subject, Reasons *reasons);
extern void check_pools(const Subject *subject, Reasons *reasons);
extern void check_executors(const Subject *subject, Reasons *reasons);
extern void check_limits(const Subject *subject, Reasons *reasons);
extern void check_claimants(const Subject *subject, Reasons *reasons);

/* Whether it has been put aside, as its key was at the limit (park.h). */
extern bool is_parked(const Job *job);

/*
 * Counts the jobs of the lane before that place that no transaction has, up to "most", among the first
 * thousand; *first becomes the place of the first of them, or highest_position.
 */
extern int	count_before(const Subject *subject, const LanePosition *end, int most, LanePosition *first);

#endif
