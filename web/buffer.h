/*
 * buffer.h
 *		Text that grows. All HTML is made through add(), whose format names the context of each value.
 */
#ifndef QUEUE_JOBS_WEB_BUFFER_H
#define QUEUE_JOBS_WEB_BUFFER_H

#include <stddef.h>

typedef struct Buffer
{
	char	   *data;			/* always ends with a zero byte */
	size_t		length;
	size_t		size;
} Buffer;

extern void buffer_init(Buffer *buffer);
extern void buffer_free(Buffer *buffer);
extern void add_bytes(Buffer *buffer, const char *bytes, size_t length);
extern void add_raw(Buffer *buffer, const char *trusted);
extern void add_html(Buffer *buffer, const char *text);
extern void add_url(Buffer *buffer, const char *text);

/*
 * %h text or attribute value in double quotes, escaped; %u value in a URL, escaped; %r text that is
 * HTML already, never of a request's or the database's; %d int; %l long long; %%. NULL is the empty
 * text.
 */
extern void add(Buffer *buffer, const char *format,...);

/* Memory or the end of the process: a dashboard that cannot have it is restarted. */
extern void *allocate(size_t size);
extern char *copy_text(const char *text);
extern char *copy_bytes(const char *bytes, size_t length);

#endif
