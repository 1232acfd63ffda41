/*
 * server.c
 *		HTTP: from a connection to a page and back.
 *
 * libmicrohttpd has a thread for each connection, so that a slow query or a slow client holds up no
 * other. The URI and the body are parsed by request.c, not by libmicrohttpd: one parser, for both,
 * which is fuzzed.
 */
#include "server.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include <microhttpd.h>

#include "connections.h"
#include "options.h"
#include "route.h"

#define MAX_BODY	(64 * 1024)
#define HEADER_MEMORY (32 * 1024)
#define STACK_SIZE	(512 * 1024)

/* A request while it comes in. */
typedef struct Incoming
{
	char	   *uri;
	Buffer		body;
	bool		started;		/* its headers were seen */
	bool		too_large;
} Incoming;

static struct MHD_Daemon *daemon_handle;

static void *
uri_received(void *context, const char *uri, struct MHD_Connection *connection)
{
	Incoming   *incoming = allocate(sizeof(Incoming));

	(void) context;
	(void) connection;
	incoming->uri = copy_text(uri);
	buffer_init(&incoming->body);
	return incoming;
}

static Connection *
connection_of(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

static void
request_ended(void *context, struct MHD_Connection *connection, void **request, enum MHD_RequestTerminationCode how)
{
	Incoming   *incoming = *request;

	(void) context;
	(void) how;
	if (incoming == NULL)
		return;
	free(incoming->uri);
	buffer_free(&incoming->body);
	free(incoming);
	*request = NULL;
	connection_reading(connection_of(connection));
}

static void
connection_changed(void *context, struct MHD_Connection *connection, void **socket_context,
				   enum MHD_ConnectionNotificationCode how)
{
	(void) context;
	if (how == MHD_CONNECTION_NOTIFY_STARTED)
		*socket_context = connection_opened(MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
	else if (*socket_context)
		connection_closed(*socket_context);
}

static void
add_headers(struct MHD_Response *response, const Page *page)
{
	static const char *const fixed[][2] = {
		{"Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"},
		{"X-Content-Type-Options", "nosniff"},
		{"X-Frame-Options", "DENY"},
		{"Referrer-Policy", "same-origin"},
		{"Cross-Origin-Opener-Policy", "same-origin"},
		{"Cross-Origin-Resource-Policy", "same-origin"},
		{NULL, NULL}
	};

	for (int i = 0; fixed[i][0]; i++)
		MHD_add_response_header(response, fixed[i][0], fixed[i][1]);
	if (page->content_type)
		MHD_add_response_header(response, "Content-Type", page->content_type);
	/* Style and script have the version in their address. */
	MHD_add_response_header(response, "Cache-Control", page->is_fixed ? "public, max-age=31536000, immutable" : "no-store");
	if (page->location)
		MHD_add_response_header(response, "Location", page->location);
	if (page->status == 405)
		MHD_add_response_header(response, "Allow", "GET, HEAD, POST");
	if (page->status == 401)
		MHD_add_response_header(response, "WWW-Authenticate", "Basic realm=\"queue_jobs\", charset=\"UTF-8\"");
}

static void
add_cookie(struct MHD_Response *response, const char *name, const char *value, const char *attributes, bool secure)
{
	Buffer		cookie;

	buffer_init(&cookie);
	add(&cookie, "%r=%u; Path=%r/; HttpOnly; SameSite=Strict%r%r", name, value, options.prefix, attributes, secure ? "; Secure" : "");
	MHD_add_response_header(response, "Set-Cookie", cookie.data);
	buffer_free(&cookie);
}

static enum MHD_Result
send_page(struct MHD_Connection *connection, Page *page)
{
	const char *protocol = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "X-Forwarded-Proto");
	bool		secure = protocol && strcmp(protocol, "https") == 0;
	struct MHD_Response *response = MHD_create_response_from_buffer(page->out.length, page->out.data, MHD_RESPMEM_MUST_FREE);
	enum MHD_Result result;

	if (response == NULL)
		return MHD_NO;
	add_headers(response, page);
	if (*page->new_cookie)
		add_cookie(response, SESSION_COOKIE, page->new_cookie, "", secure);
	if (page->say || page->said)
		add_cookie(response, SESSION_COOKIE "_said", page->say, page->say ? "; Max-Age=60" : "; Max-Age=0", secure);
	page->out.data = NULL;
	connection_replying(connection_of(connection));
	result = MHD_queue_response(connection, page->status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result
refuse(struct MHD_Connection *connection, int status, const char *title, const char *text)
{
	Page		page;
	enum MHD_Result result;

	page_init(&page);
	page_error(&page, status, title, text);
	result = send_page(connection, &page);
	page_free(&page);
	return result;
}

static const char *
header(struct MHD_Connection *connection, const char *name)
{
	return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

bool
is_loopback(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
		return (ntohl(((const struct sockaddr_in *) address)->sin_addr.s_addr) >> 24) == 127;
	return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *) address)->sin6_addr);
}

/* One customer has as many addresses of version 6 as share the first 64 bits: they count as one. */
static void
print_address6(const struct in6_addr *address, char printed[INET6_ADDRSTRLEN])
{
	struct in6_addr network = *address;

	if (IN6_IS_ADDR_V4MAPPED(address))
		inet_ntop(AF_INET, &address->s6_addr[12], printed, INET6_ADDRSTRLEN);
	else
	{
		memset(&network.s6_addr[8], 0, 8);
		inet_ntop(AF_INET6, &network, printed, INET6_ADDRSTRLEN);
	}
}

/* The last of X-Forwarded-For is the one that our own proxy has written. */
static bool
read_forwarded(const char *forwarded, char printed[INET6_ADDRSTRLEN])
{
	const char *comma = strrchr(forwarded, ',');
	const char *last = comma ? comma + 1 : forwarded;
	struct in6_addr address6;
	struct in_addr address;
	char		text[INET6_ADDRSTRLEN];

	last += strspn(last, " \t");
	if (strlen(last) >= sizeof(text))
		return false;
	strcpy(text, last);
	text[strcspn(text, " \t")] = '\0';
	if (inet_pton(AF_INET, text, &address) == 1)
		return inet_ntop(AF_INET, &address, printed, INET6_ADDRSTRLEN) != NULL;
	if (inet_pton(AF_INET6, text, &address6) != 1)
		return false;
	print_address6(&address6, printed);
	return true;
}

/*
 * Where the request comes from. A proxy on this machine says for whom it asks; what a browser elsewhere says
 * of itself does not count.
 */
static void
read_address(struct MHD_Connection *connection, char printed[INET6_ADDRSTRLEN])
{
	const struct sockaddr *peer = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
	const char *forwarded = header(connection, "X-Forwarded-For");

	if (forwarded && is_loopback(peer) && read_forwarded(forwarded, printed))
		return;
	if (peer->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *) peer)->sin_addr, printed, INET6_ADDRSTRLEN);
	else
		print_address6(&((const struct sockaddr_in6 *) peer)->sin6_addr, printed);
}

static enum MHD_Result
answer_request(struct MHD_Connection *connection, Incoming *incoming, bool is_post)
{
	char		address[INET6_ADDRSTRLEN];
	Headers		headers = {
		.address = address,
		.host = header(connection, "Host"),
		.cookie = header(connection, "Cookie"),
		.content_type = header(connection, "Content-Type"),
		.fetch_site = header(connection, "Sec-Fetch-Site"),
		.refresh = header(connection, "X-Refresh"),
	};
	Page		page;
	enum MHD_Result result;

	read_address(connection, address);
	connection_working(connection_of(connection));
	headers.user = MHD_basic_auth_get_username_password(connection, &headers.password);
	page_init(&page);
	route(&page, &headers, incoming->uri, is_post ? incoming->body.data : NULL, incoming->body.length);
	if (page.viewer)
		connection_of_viewer(connection_of(connection));
	result = send_page(connection, &page);
	page_free(&page);
	MHD_free(headers.user);
	MHD_free(headers.password);
	return result;
}

/* libmicrohttpd calls it when the headers are there, with each part of the body, and at its end. */
static enum MHD_Result
request_received(void *context, struct MHD_Connection *connection, const char *url, const char *method, const char *version,
				 const char *upload, size_t *upload_size, void **request)
{
	Incoming   *incoming = *request;
	bool		is_post = strcmp(method, "POST") == 0;
	const char *length = header(connection, "Content-Length");

	(void) context;
	(void) url;
	(void) version;
	if (!incoming->started)
	{
		incoming->started = true;
		if (!is_post && strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
			return refuse(connection, 405, "Method not allowed", "Only GET, HEAD and POST are answered here.");
		if (length && strtoull(length, NULL, 10) > MAX_BODY)
			return refuse(connection, 413, "Too large", "No form of this dashboard sends so much.");
		return MHD_YES;
	}
	if (*upload_size > 0)
	{
		incoming->too_large |= incoming->body.length + *upload_size > MAX_BODY;
		if (!incoming->too_large)
			add_bytes(&incoming->body, upload, *upload_size);
		*upload_size = 0;
		return MHD_YES;
	}
	if (incoming->too_large)
		return refuse(connection, 413, "Too large", "No form of this dashboard sends so much.");
	return answer_request(connection, incoming, is_post);
}

/* Our own parser reads the URI; what libmicrohttpd makes of it does not count. */
static size_t
leave_escaped(void *context, struct MHD_Connection *connection, char *text)
{
	(void) context;
	(void) connection;
	return strlen(text);
}

static void
no_log(void *context, const char *format, va_list values)
{
	(void) context;
	(void) format;
	(void) values;
}

bool
server_start(const struct sockaddr *address)
{
	unsigned int flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ERROR_LOG;

	if (address->sa_family == AF_INET6)
		flags |= MHD_USE_IPv6;
	daemon_handle = MHD_start_daemon(flags, 0, NULL, NULL, request_received, NULL,
									 MHD_OPTION_EXTERNAL_LOGGER, no_log, NULL,
									 MHD_OPTION_SOCK_ADDR, address,
									 MHD_OPTION_CONNECTION_LIMIT, (unsigned int) MAX_CONNECTIONS,
									 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int) SILENCE_SECONDS,
									 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t) HEADER_MEMORY,
									 MHD_OPTION_THREAD_STACK_SIZE, (size_t) STACK_SIZE,
									 MHD_OPTION_STRICT_FOR_CLIENT, 1,
									 MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, NULL,
									 MHD_OPTION_URI_LOG_CALLBACK, uri_received, NULL,
									 MHD_OPTION_NOTIFY_COMPLETED, request_ended, NULL,
									 MHD_OPTION_NOTIFY_CONNECTION, connection_changed, NULL,
									 MHD_OPTION_END);
	return daemon_handle != NULL;
}

void
server_stop(void)
{
	MHD_stop_daemon(daemon_handle);
}

int
server_port(void)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon_handle, MHD_DAEMON_INFO_BIND_PORT);

	return info ? info->port : 0;
}
