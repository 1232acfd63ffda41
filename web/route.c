/*
 * route.c
 *		Which page answers a request, and whether it may be asked for.
 */
#include "route.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "assets.h"

static const struct
{
	const char *path;			/* one that ends in / is followed by an id */
	void		(*answer) (Page *page);
}			routes[] =
{
	{"/", page_overview},
	{"/jobs", page_jobs},
	{"/jobs/", page_job},
	{"/queues", page_queues},
	{"/workers", page_workers},
	{"/worker", page_worker},
	{"/schedules", page_schedules},
	{"/batches", page_batches},
	{"/batches/", page_batch},
	{"/replicas", page_replicas},
	{"/executors", page_executors},
};

void
page_init(Page *page)
{
	memset(page, 0, sizeof(*page));
	buffer_init(&page->out);
	page->status = 200;
	page->content_type = "text/html; charset=utf-8";
}

void
page_free(Page *page)
{
	for (int i = 0; i < page->answer_count; i++)
		answer_release(page->answers[i]);
	params_free(&page->query);
	params_free(&page->form);
	buffer_free(&page->out);
	free(page->said);
	free(page->say);
	free(page->location);
}

static bool
answers_asset(Page *page)
{
	const Asset *asset = strcmp(page->path, "/style.css") == 0 ? &asset_style : strcmp(page->path, "/script.js") == 0 ? &asset_script : NULL;

	if (asset == NULL)
		return false;
	page->content_type = asset->type;
	page->is_fixed = true;
	add_bytes(&page->out, (const char *) asset->bytes, asset->length);
	return true;
}

/* The page of a path, and the id that follows it. */
static void
answer_page(Page *page)
{
	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
	{
		size_t		length = strlen(routes[i].path);

		if (strcmp(page->path, routes[i].path) == 0 && (length == 1 || routes[i].path[length - 1] != '/'))
		{
			routes[i].answer(page);
			return;
		}
		if (length > 1 && routes[i].path[length - 1] == '/' && strncmp(page->path, routes[i].path, length) == 0 &&
			parse_id(page->path + length, &page->id))
		{
			routes[i].answer(page);
			return;
		}
	}
	page_error(page, 404, "Not found", "There is no such page.");
}

/* Takes the flash of the action before; it is shown once. A refresh shows none: so it leaves it. */
static void
read_said(Page *page, const Headers *headers)
{
	char	   *value = cookie_value(headers->cookie, SESSION_COOKIE "_said");
	Params		said = {0};

	if (value && params_parse(&said, value, strlen(value)) && said.count == 1)
		page->said = copy_text(said.list[0].name);
	params_free(&said);
	free(value);
}

/* The browser's cookie, or a new one; and the token of its forms. */
static void
read_cookie(Page *page, const Headers *headers)
{
	char	   *cookie = cookie_value(headers->cookie, SESSION_COOKIE);

	if (session_is_id(cookie))
		strcpy(page->cookie, cookie);
	else
	{
		session_new_id(page->cookie);
		strcpy(page->new_cookie, page->cookie);
	}
	free(cookie);
	session_token(page->cookie, page->token);
}

/*
 * Another site can make a browser send a form here. It can neither read our token nor, with
 * SameSite, have the cookie sent; the browser says where it came from, too.
 */
static bool
is_own_form(const Page *page, const Headers *headers)
{
	if (headers->fetch_site && strcmp(headers->fetch_site, "same-origin") != 0 && strcmp(headers->fetch_site, "none") != 0)
		return false;
	return session_token_matches(page->cookie, param(&page->form, "token"));
}

static void
answer_post(Page *page, const Headers *headers)
{
	static const char form_type[] = "application/x-www-form-urlencoded";

	if (headers->content_type == NULL || strncasecmp(headers->content_type, form_type, sizeof(form_type) - 1) != 0)
		page_error(page, 415, "Unsupported type", "Forms come as application/x-www-form-urlencoded.");
	else if (!is_own_form(page, headers))
		page_error(page, 403, "Not from here", "This form is too old, or not of this dashboard. Nothing was done. Go back, reload the page, and try again.");
	else if (options.login && (strcmp(page->path, "/login") == 0 || strcmp(page->path, "/logout") == 0))
		page_sign_in(page);
	else if (page->viewer == NULL)
		page_redirect(page, "/login");
	else if (strncmp(page->path, "/action/", 8) != 0)
		page_error(page, 404, "Not found", "There is no such action.");
	else if (options.read_only)
		page_error(page, 403, "Read only", "This dashboard was started with --read-only.");
	else
		page_action(page);
}

/* /metrics by a role's name and password, with a connection that ends with the request. */
static void
answer_basic(Page *page, const Headers *headers)
{
	char	   *problem = NULL;
	int			status;

	if (headers->user && headers->password && *headers->user && *headers->password)
		page->viewer = page_try_to_sign_in(page, headers->user, headers->password, &problem, &status);
	free(problem);
	if (page->viewer == NULL)
	{
		page_error(page, 401, "Sign in", "Sign in with a role of the database and its password.");
		return;
	}
	page_metrics(page);
	viewer_close(page->viewer);
	page->viewer = NULL;
}

static void
answer_get(Page *page, const Headers *headers)
{
	if (strcmp(page->path, "/healthz") == 0)
		page_health(page);
	else if (strcmp(page->path, "/metrics") == 0 && page->viewer)
		page_metrics(page);
	else if (strcmp(page->path, "/metrics") == 0)
		answer_basic(page, headers);
	else if (options.login && strcmp(page->path, "/login") == 0)
		page_sign_in(page);
	else if (page->viewer == NULL)
		page_redirect(page, "/login");
	else
	{
		if (headers->refresh == NULL)
			read_said(page, headers);
		answer_page(page);
	}
}

/*
 * The path without the prefix. Another web site's name that resolves to this machine ("DNS
 * rebinding") would be let in by the browser: without signing in, the Host header must be of
 * this machine. With sign-in, such a site has no cookie.
 */
static bool
is_acceptable(Page *page, const Headers *headers, const char *uri, char *path)
{
	size_t		prefix_length = strlen(options.prefix);

	if (!options.login && !host_allowed(headers->host, options.hosts))
		page_error(page, 421, "Another host", "This dashboard does not answer under that name. --host=NAME lets it, if a proxy of yours asks.");
	else if (strncmp(path, options.prefix, prefix_length) != 0 || path[prefix_length] != '/')
		page_error(page, 404, "Not found", "There is no such page.");
	else if (!is_local_path(uri, options.prefix))
		page_error(page, 400, "Bad request", "The address is malformed.");
	else
	{
		page->path = path + prefix_length;
		page->target = uri;
		return true;
	}
	return false;
}

static void
answer_for_viewer(Page *page, const Headers *headers)
{
	Session    *session = NULL;

	if (!options.login)
		page->viewer = viewer_of_program();
	else if ((session = session_find(page->cookie, headers->refresh == NULL)) != NULL)
		page->viewer = session_viewer(session);
	if (page->is_post)
		answer_post(page, headers);
	else
		answer_get(page, headers);
	if (session)
		session_release(session);
}

void
route(Page *page, const Headers *headers, const char *uri, const char *body, size_t length)
{
	const char *question = strchr(uri, '?');
	char	   *path = copy_bytes(uri, strcspn(uri, "?"));

	page->is_post = body != NULL;
	page->address = headers->address;
	if (is_acceptable(page, headers, uri, path) && !answers_asset(page))
	{
		if ((question && !params_parse(&page->query, question + 1, strlen(question + 1))) ||
			(body && !params_parse(&page->form, body, length)))
			page_error(page, 400, "Bad request", "The parameters are malformed.");
		else
		{
			read_cookie(page, headers);
			answer_for_viewer(page, headers);
		}
	}
	page->path = NULL;
	page->target = NULL;
	page->address = NULL;
	free(path);
}
