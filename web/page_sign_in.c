/*
 * page_sign_in.c
 *		--login: in and out.
 */
#include <stdlib.h>
#include <string.h>

#include "page.h"

static void
add_form(Page *page, int status, const char *problem)
{
	Buffer	   *out = &page->out;
	const char *role = param(&page->form, "role");

	page->status = status;
	page_begin(page, "Sign in", NULL);
	if (problem)
		add(out, "<p class=\"problem\" role=\"alert\">%h</p>", problem);
	add(out, "<form class=\"sign-in\" method=\"post\" action=\"%r/login\"><input type=\"hidden\" name=\"token\" value=\"%h\">"
		"<label>Role <input name=\"role\" value=\"%h\" required maxlength=\"63\" autocomplete=\"username\" autocapitalize=\"none\" spellcheck=\"false\" autofocus></label>"
		"<label>Password <input type=\"password\" name=\"password\" required maxlength=\"1000\" autocomplete=\"current-password\"></label>"
		"<button class=\"main\">Sign in</button><p class=\"hint\">A role of the database, and its password. You see and may do what that role may.</p></form>\n",
		options.prefix, page->token, role);
	page_end(page);
}

/* What the server said, without where it is. */
static const char *
server_words(const char *problem)
{
	const char *fatal = strstr(problem, "FATAL:");

	if (fatal)
		return fatal + strlen("FATAL:") + strspn(fatal + strlen("FATAL:"), " ");
	return strstr(problem, "connection to server") ? "The server cannot be reached." : problem;
}

Viewer *
page_try_to_sign_in(Page *page, const char *role, const char *password, char **problem, int *status)
{
	Attempt		attempt;
	Viewer	   *viewer = NULL;

	switch (attempt_begin(&attempt, role, page->address))
	{
		case ATTEMPT_ALLOWED:
			viewer = viewer_sign_in(role, password, problem);
			attempt_end(&attempt, viewer != NULL);
			*status = 403;
			break;
		case ATTEMPT_TOO_OFTEN:
			*problem = copy_text("Too many failures of this role, or from your address. Try again in a minute.");
			*status = 429;
			break;
		case ATTEMPT_TOO_MANY_AT_ONCE:
			*problem = copy_text("Too many sign in at once. Please try again.");
			*status = 503;
			break;
	}
	return viewer;
}

static void
sign_in(Page *page)
{
	const char *role = param_given(&page->form, "role");
	const char *password = param(&page->form, "password");
	Viewer	   *viewer;
	char	   *problem;
	int			status;

	if (role == NULL || password == NULL || *password == '\0')
	{
		add_form(page, 422, "Role and password are needed.");
		return;
	}
	viewer = page_try_to_sign_in(page, role, password, &problem, &status);
	if (viewer == NULL)
	{
		add_form(page, status, server_words(problem));
		free(problem);
		return;
	}
	session_end(page->cookie);
	if (session_start(viewer, page->new_cookie))
		page_redirect(page, "/");
	else
		add_form(page, 503, "Too many are signed in already. Try again later.");
}

void
page_sign_in(Page *page)
{
	if (!page->is_post && page->viewer)
		page_redirect(page, "/");
	else if (!page->is_post)
		add_form(page, 200, NULL);
	else if (strcmp(page->path, "/logout") == 0)
	{
		session_end(page->cookie);
		session_new_id(page->new_cookie);
		page_redirect(page, "/login");
	}
	else
		sign_in(page);
}
