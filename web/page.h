/*
 * page.h
 *		One request and its reply, while it is being answered; and what all pages are made of.
 */
#ifndef QUEUE_JOBS_WEB_PAGE_H
#define QUEUE_JOBS_WEB_PAGE_H

#include <stdbool.h>

#include "attempts.h"
#include "buffer.h"
#include "database.h"
#include "options.h"
#include "request.h"
#include "session.h"

#define MAX_ANSWERS 24

typedef struct Page
{
	/* the request */
	const char *path;			/* below the prefix, as it was sent */
	const char *target;			/* path and query, as they were sent */
	bool		is_post;
	Params		query;
	Params		form;
	long long	id;				/* of a path such as /jobs/12 */
	char		cookie[SESSION_HEX + 1];
	char		token[SESSION_HEX + 1];
	char	   *said;			/* what the action before this page came to */
	const char *address;		/* of the browser, as far as it is known */
	Viewer	   *viewer;			/* NULL: not signed in */

	/* the reply */
	Buffer		out;
	int			status;
	const char *content_type;
	bool		is_fixed;		/* may be kept by the browser */
	char	   *location;		/* of a redirect */
	char	   *say;			/* to be said by the page that the redirect leads to */
	char		new_cookie[SESSION_HEX + 1];

	Answer	   *answers[MAX_ANSWERS];	/* released with the page */
	int			answer_count;
} Page;

/* The pages. */
extern void page_overview(Page *page);
extern void page_jobs(Page *page);
extern void page_job(Page *page);
extern void page_queues(Page *page);
extern void page_workers(Page *page);
extern void page_worker(Page *page);
extern void page_schedules(Page *page);
extern void page_batches(Page *page);
extern void page_batch(Page *page);
extern void page_replicas(Page *page);
extern void page_executors(Page *page);
extern void page_metrics(Page *page);
extern void page_health(Page *page);
extern void page_sign_in(Page *page);
extern void page_action(Page *page);
/* Signs a role in, if it has not tried too often. NULL: why is in problem, to be freed, and status. */
extern Viewer *page_try_to_sign_in(Page *page, const char *role, const char *password, char **problem, int *status);
extern void page_error(Page *page, int status, const char *title, const char *text);

/* Frame: everything between the two is the page's own. nav: the path of its entry in the navigation. */
extern void page_begin(Page *page, const char *title, const char *nav);
extern void page_end(Page *page);
extern void page_redirect(Page *page, const char *path);

/* Asks the database, with count values (NULL is NULL). */
extern Answer *page_ask(Page *page, const char *sql, int count,...);
extern Answer *page_keep(Page *page, Answer *answer);
extern int	rows(const Answer *answer);
/* NULL: the value is NULL, or this version has no such column. */
extern const char *cell(const Answer *answer, int row, const char *column);
extern double number(const Answer *answer, int row, const char *column);
extern bool is_text(const char *value, const char *expected);
extern bool is_true(const Answer *answer, int row, const char *column);
/* Whether the answer is an error; then says in the page what it means for what was to be seen there. */
extern bool is_problem(Page *page, const Answer *answer, const char *what);

/* Parts of pages. */
extern void add_count(Buffer *out, double count);
extern void add_seconds(Buffer *out, double seconds);
extern void add_share(Buffer *out, const char *share);
extern void add_time(Buffer *out, const char *timestamp);
extern double age_of(const char *timestamp);
extern void add_state(Buffer *out, const char *state);
/* What a job says of how far it is, in its columns progress and message: a bar for a share from 0 to 1. */
extern void add_report(Buffer *out, const Answer *jobs, int row);
extern void add_job_link(Buffer *out, const char *id);
extern void add_queue_link(Buffer *out, const char *queue);
extern void add_worker_link(Buffer *out, const char *worker);
extern void add_code(Buffer *out, const char *summary, const char *text);

/*
 * A form of an action; a button alone is a form without fields to see. Nothing is shown with
 * --read-only.
 */
extern void form_begin(Page *page, const char *action, const char *class);
extern void form_hidden(Page *page, const char *name, const char *value);
extern void form_end(Page *page);
extern void add_button(Page *page, const char *action, const char *name, const char *value, const char *label, const char *class);

#endif
