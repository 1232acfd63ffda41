/*
 * fuzz.c
 *		The parsing of requests under random input. Under libFuzzer (test/fuzz), or by itself:
 *		fuzz SECONDS [SEED].
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buffer.h"
#include "filter.h"
#include "request.h"

/* What filter.c needs of the program. */
Options		options;

void
form_hidden(Page *page, const char *name, const char *value)
{
	if (value)
		add(&page->out, "%h=%h", name, value);
}

/*
 * What was parsed has to be UTF-8 without zero bytes, and to come back the same from what it is
 * written as.
 */
static void
check_params(const Params *params)
{
	for (int i = 0; i < params->count; i++)
	{
		Buffer		written;
		Params		again = {0};

		buffer_init(&written);
		add(&written, "%u=%u", params->list[i].name, params->list[i].value);
		if (!is_utf8(params->list[i].value, strlen(params->list[i].value)) ||
			!params_parse(&again, written.data, written.length) || again.count != 1 ||
			strcmp(again.list[0].name, params->list[i].name) != 0 || strcmp(again.list[0].value, params->list[i].value) != 0)
			abort();
		params_free(&again);
		written.length = 0;
		add_html(&written, params->list[i].value);
		if (strpbrk(written.length ? written.data : "", "<>\"'"))
			abort();
		buffer_free(&written);
	}
}

/* A page's links have its filter: which comes back the same from what it is written as. */
static void
check_filter(const Params *params)
{
	Filter		filter;
	Filter		again;
	Buffer		written;
	Params		parsed = {0};

	filter_read(&filter, params);
	buffer_init(&written);
	filter_query(&written, &filter);
	for (char *found = written.data; written.length && (found = strstr(found, "&amp;")); found++)
		memmove(found + 1, found + 5, strlen(found + 5) + 1);
	if (!params_parse(&parsed, written.length ? written.data : "", written.length ? strlen(written.data) : 0))
		abort();
	filter_read(&again, &parsed);
	for (int i = 0; i < FILTER_VALUES; i++)
		if (i != FILTER_STATES && (!filter.values[i] != !again.values[i] || (filter.values[i] && strcmp(filter.values[i], again.values[i]) != 0)))
			abort();
	for (int i = 0; filter_states[i]; i++)
		if (filter_has_state(&filter, filter_states[i]) != filter_has_state(&again, filter_states[i]))
			abort();
	params_free(&parsed);
	buffer_free(&written);
}

int
LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	char	   *text = copy_bytes((const char *) data, size);
	Params	   *params = allocate(sizeof(Params));
	long long	id;

	if (params_parse(params, text, size))
		check_filter(params);
	check_params(params);
	params_free(params);
	free(params);
	free(cookie_value(text, "queue_jobs_web"));
	host_allowed(text, NULL);
	if (is_local_path(text, "/at") && (strncmp(text, "/at/", 4) != 0 || strpbrk(text, "\r\n\\ ")))
		abort();
	if (parse_id(text, &id) && id < 0)
		abort();
	free(text);
	return 0;
}

#ifndef LIBFUZZER
static const char *const seeds[] = {
	"a=b&c=%3Cb%3E&d=%F0%9F%90%98&e", "worker=x&state=dead&state=available&args=%7B%22a%22%3A1%7D", "id=1&id=2&id=9223372036854775807",
	"queue_jobs_web=0123456789abcdef; other=1", "127.0.0.1:8480", "[::1]:8480", "localhost", "/at/jobs?a=b", "/at//x", "%", "%0", "%00", "=&=&==", "18446744073709551616",
};

/* A seed, changed in a few places. */
static size_t
mutate(char *text, size_t size)
{
	const char *seed = seeds[rand() % (sizeof(seeds) / sizeof(seeds[0]))];
	size_t		length = strlen(seed);

	memcpy(text, seed, length);
	for (int changes = rand() % 8; changes > 0 && length > 0; changes--)
	{
		size_t		at = rand() % length;

		switch (rand() % 4)
		{
			case 0:
				text[at] = (char) rand();
				break;
			case 1:
				text[at] = "%&=;:/\\[]\"'<>+\0 "[rand() % 17];
				break;
			case 2:
				length = at;
				break;
			default:
				if (2 * length < size)
				{
					memcpy(text + length, text, length);
					length *= 2;
				}
		}
	}
	return length;
}

int
main(int argc, char **argv)
{
	time_t		end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 5);
	char		text[4096];
	long		count = 0;

	srand(argc > 2 ? (unsigned) atoi(argv[2]) : (unsigned) time(NULL));
	for (; time(NULL) < end; count++)
		LLVMFuzzerTestOneInput((unsigned char *) text, mutate(text, sizeof(text)));
	printf("%ld inputs\n", count);
	return 0;
}
#endif
