/*
 * report.h
 *		How far jobs are that run, as report() says: other sessions see it before the run's transaction
 *		commits.
 *
 * What a run reports stands in shared memory, and costs neither WAL nor a row version, however often a
 * handler calls report(). The transaction that ends the run writes the latest report to the job's row. A
 * rollback to a savepoint does not undo a report. But the report of a run that a rollback or a crash undoes
 * is gone with it: the job's row has what it had before.
 *
 * There is room for MOST_REPORTS jobs. If more report at once, those go that have been silent for longest.
 */
#ifndef QUEUE_JOBS_REPORT_H
#define QUEUE_JOBS_REPORT_H

#include "access/xact.h"
#include "job.h"

#define MOST_REPORTS 4096
#define MAX_MESSAGE_LENGTH 200	/* bytes */

typedef struct Report
{
	bool		has_progress;
	bool		has_message;
	float8		progress;
	char		message[MAX_MESSAGE_LENGTH + 1];
} Report;

/* A report in shared memory, and which run made it. */
typedef struct MadeReport
{
	Oid			database;
	Oid			owner;			/* of the job: who may see it */
	TimestampTz created_at;		/* the job's: another job has its id after DROP EXTENSION */
	int32		attempt;		/* counts the run */
	int			pid;			/* of the process that reported last */
	Report		report;
} MadeReport;

extern void reports_init(void);

/* Writes a text into a report, cut at the boundary of a character. */
extern void report_set_message(Report *report, const char *text);

/*
 * Shows what a run says of the job, and wakes the sessions that wait for it. What it leaves out stays as the
 * run said before. A run that has said nothing before begins with nothing, or, if it goes on where an earlier
 * one was, with what the job has. job->attempt counts the run, and "owner" is the job's. Returns false
 * without shared memory.
 */
extern bool report_make(const Job *job, Oid owner, bool goes_on, const Report *said);

/* Finds the report of a run of the job beyond the attempt. Returns false if there is none. */
extern bool report_find(int64 job, TimestampTz created_at, int32 attempt, MadeReport *found);

/* Writes the report of the job's present run, if it has made one, into the job. */
extern void report_copy(Job *job);

/*
 * Does the same for a job whose run ends. Other sessions see the report until this transaction has ended.
 */
extern void report_keep(Job *job);

/* Writes what a run says into the job, whose message is then in the current memory context. */
extern void report_add(Job *job, const Report *said);

/* Forgets the report of that run, if that process made it; 0: if any process did. */
extern void report_forget(int64 job, int32 attempt, int pid);

/* At the end of a transaction (hooks.c). */
extern void reports_transaction_end(XactEvent event);

#endif
