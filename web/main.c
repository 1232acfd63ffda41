/*
 * main.c
 *		queue_jobs_web: what queue_jobs does, in a browser.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buffer.h"
#include "connections.h"
#include "database.h"
#include "history.h"
#include "options.h"
#include "server.h"
#include "session.h"

#define WATCH_SECONDS 2

Options		options = {.conninfo = "", .listen = "127.0.0.1:8480", .prefix = ""};

static const char usage[] =
	"queue_jobs_web shows what queue_jobs does in a database, in a browser.\n\n"
	"Usage: queue_jobs_web [OPTION]... [CONNINFO]\n\n"
	"CONNINFO is a connection string or URI; PG* variables count as for psql.\n\n"
	"  --listen=ADDRESS:PORT  default 127.0.0.1:8480; port 0: any\n"
	"  --prefix=/PATH         it is found below that path (behind a proxy)\n"
	"  --host=NAME            a name that browsers may use beside localhost; can be repeated\n"
	"  --login                one signs in with a role of the database and its password\n"
	"  --read-only            nothing can be changed\n"
	"  --hide-args            args, context and results of jobs are not shown\n"
	"  --help, --version\n";

static const struct option long_options[] = {
	{"listen", required_argument, NULL, 'l'},
	{"prefix", required_argument, NULL, 'p'},
	{"host", required_argument, NULL, 'o'},
	{"login", no_argument, NULL, 'i'},
	{"read-only", no_argument, NULL, 'r'},
	{"hide-args", no_argument, NULL, 'a'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'v'},
	{NULL, 0, NULL, 0}
};

static void
fail(const char *message, const char *value)
{
	fprintf(stderr, "queue_jobs_web: %s%s%s\n", message, value ? ": " : "", value ? value : "");
	exit(1);
}

static void
set_prefix(const char *prefix)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
	size_t		length = strlen(prefix);

	if (strcmp(prefix, "/") == 0)
		return;
	if (*prefix != '/' || prefix[length - 1] == '/' || strstr(prefix, "//") || strspn(prefix, allowed) != length)
		fail("--prefix is a path that begins with a slash and does not end with one", prefix);
	options.prefix = prefix;
}

static void
add_host(const char *name)
{
	int			count = 0;

	while (options.hosts[count])
		count++;
	if (count == MAX_HOSTS)
		fail("too many --host", name);
	options.hosts[count] = name;
}

static void
set_option(int option)
{
	switch (option)
	{
		case 'l':
			options.listen = optarg;
			break;
		case 'p':
			set_prefix(optarg);
			break;
		case 'o':
			add_host(optarg);
			break;
		case 'i':
			options.login = true;
			break;
		case 'r':
			options.read_only = true;
			break;
		case 'a':
			options.hide_args = true;
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		case 'v':
			puts("queue_jobs_web " QUEUE_JOBS_VERSION);
			exit(0);
		default:
			fputs("Try queue_jobs_web --help.\n", stderr);
			exit(2);
	}
}

static void
read_options(int argc, char **argv)
{
	int			option;

	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1)
		set_option(option);
	if (optind + 1 < argc)
		fail("more than one connection string", argv[optind + 1]);
	if (optind < argc)
		options.conninfo = argv[optind];
}

/* ADDRESS:PORT or [ADDRESS]:PORT, numbers both. */
static void
listen_address(struct sockaddr_storage *address)
{
	const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE, .ai_socktype = SOCK_STREAM};
	const char *colon = strrchr(options.listen, ':');
	struct addrinfo *found;
	char	   *host;
	size_t		length;

	if (colon == NULL)
		fail("--listen is ADDRESS:PORT", options.listen);
	length = (size_t) (colon - options.listen);
	if (strncmp(options.listen, "localhost:", length + 1) == 0)
		host = copy_text("127.0.0.1");
	else
		host = *options.listen == '[' && length > 1 && colon[-1] == ']' ? copy_bytes(options.listen + 1, length - 2) : copy_bytes(options.listen, length);
	if (*host == '\0' || getaddrinfo(host, colon + 1, &hints, &found) != 0)
		fail("--listen is ADDRESS:PORT, with the address as a number", options.listen);
	memcpy(address, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	free(host);
	if (!options.login && !is_loopback((struct sockaddr *) address))
		fail("without --login, anyone who reaches the port acts as the connection's role: it listens on localhost only", options.listen);
}

/* Looks after connections and sessions, and keeps the history of the program's own role. */
static void *
watch(void *nothing)
{
	const struct timespec pause = {.tv_sec = WATCH_SECONDS};
	int			seconds = HISTORY_SECONDS;

	for (;;)
	{
		connections_check();
		session_sweep();
		seconds += WATCH_SECONDS;
		if (!options.login && seconds >= HISTORY_SECONDS)
		{
			answer_release(history_ask(viewer_of_program()));
			seconds = 0;
		}
		nanosleep(&pause, NULL);
	}
	return nothing;
}

static void
say_where(void)
{
	const char *colon = strrchr(options.listen, ':');

	printf("queue_jobs_web listens on http://%.*s:%d%s/\n", (int) (colon - options.listen), options.listen, server_port(), options.prefix);
	fflush(stdout);
}

int
main(int argc, char **argv)
{
	struct sockaddr_storage address;
	sigset_t	stop;
	pthread_t	watcher;
	int			number;

	read_options(argc, argv);
	listen_address(&address);
	if (!session_init())
		fail("no random numbers", NULL);
	signal(SIGPIPE, SIG_IGN);
	/* Threads inherit it: the signals come to sigwait() alone. */
	sigemptyset(&stop);
	sigaddset(&stop, SIGINT);
	sigaddset(&stop, SIGTERM);
	sigaddset(&stop, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &stop, NULL);
	viewer_of_program();
	if (!server_start((struct sockaddr *) &address))
		fail(strerror(errno), options.listen);
	if (pthread_create(&watcher, NULL, watch, NULL) != 0)
		fail("no thread", NULL);
	say_where();
	sigwait(&stop, &number);
	server_stop();
	return 0;
}
