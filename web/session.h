/*
 * session.h
 *		Who a browser is: its cookie, the token of its forms, and with --login the role that has signed in.
 */
#ifndef QUEUE_JOBS_WEB_SESSION_H
#define QUEUE_JOBS_WEB_SESSION_H

#include <stdbool.h>

#include "database.h"

#define SESSION_COOKIE	"queue_jobs_web"
#define SESSION_HEX		64		/* digits of a cookie or a token */

typedef struct Session Session;

extern bool session_init(void);
extern void session_new_id(char id[SESSION_HEX + 1]);
extern bool session_is_id(const char *id);
/* The token that a form of this cookie's browser carries. Another site can make it send neither. */
extern void session_token(const char *id, char token[SESSION_HEX + 1]);
extern bool session_token_matches(const char *id, const char *token);

/*
 * Gives the viewer a session. A role that has many already loses the one that it has not used for longest.
 * False: there are too many of other roles, and the viewer is closed.
 */
extern bool session_start(Viewer *viewer, char id[SESSION_HEX + 1]);
/*
 * The session of that cookie, to be released; NULL: none, or it was idle for too long. A refresh by
 * the script is no use of it.
 */
extern Session *session_find(const char *id, bool is_use);
extern Viewer *session_viewer(Session *session);
extern void session_release(Session *session);
extern void session_end(const char *id);
/* Ends those that were idle for too long. */
extern void session_sweep(void);

#endif
