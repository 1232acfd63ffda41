/*
 * buffer.c
 *		Text that grows, and escaping by context.
 */
#include "buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *
allocate(size_t size)
{
	void	   *memory = calloc(1, size > 0 ? size : 1);

	if (memory == NULL)
	{
		fputs("queue_jobs_web: out of memory\n", stderr);
		abort();
	}
	return memory;
}

char *
copy_bytes(const char *bytes, size_t length)
{
	char	   *copy = allocate(length + 1);

	memcpy(copy, bytes, length);
	return copy;
}

char *
copy_text(const char *text)
{
	return text ? copy_bytes(text, strlen(text)) : NULL;
}

void
buffer_init(Buffer *buffer)
{
	buffer->size = 1024;
	buffer->length = 0;
	buffer->data = allocate(buffer->size);
}

void
buffer_free(Buffer *buffer)
{
	free(buffer->data);
	memset(buffer, 0, sizeof(*buffer));
}

void
add_bytes(Buffer *buffer, const char *bytes, size_t length)
{
	if (buffer->size - buffer->length <= length)
	{
		size_t		size = 2 * (buffer->size + length);
		char	   *larger = allocate(size);

		memcpy(larger, buffer->data, buffer->length);
		free(buffer->data);
		buffer->data = larger;
		buffer->size = size;
	}
	memcpy(buffer->data + buffer->length, bytes, length);
	buffer->length += length;
	buffer->data[buffer->length] = '\0';
}

void
add_raw(Buffer *buffer, const char *trusted)
{
	if (trusted)
		add_bytes(buffer, trusted, strlen(trusted));
}

static const char *
entity(char c)
{
	switch (c)
	{
		case '&':
			return "&amp;";
		case '<':
			return "&lt;";
		case '>':
			return "&gt;";
		case '"':
			return "&quot;";
		case '\'':
			return "&#39;";
		default:
			return NULL;
	}
}

void
add_html(Buffer *buffer, const char *text)
{
	const char *start = text;

	if (text == NULL)
		return;
	for (; *text; text++)
	{
		const char *replacement = entity(*text);

		if (replacement == NULL)
			continue;
		add_bytes(buffer, start, text - start);
		add_raw(buffer, replacement);
		start = text + 1;
	}
	add_bytes(buffer, start, text - start);
}

/* Everything but RFC 3986's unreserved characters is escaped, so the result needs no escaping as HTML. */
void
add_url(Buffer *buffer, const char *text)
{
	static const char unreserved[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
	char		escaped[4];

	for (; text && *text; text++)
		if (strchr(unreserved, *text))
			add_bytes(buffer, text, 1);
		else
		{
			snprintf(escaped, sizeof(escaped), "%%%02X", (unsigned char) *text);
			add_bytes(buffer, escaped, 3);
		}
}

static void
add_number(Buffer *buffer, long long number)
{
	char		digits[24];

	snprintf(digits, sizeof(digits), "%lld", number);
	add_raw(buffer, digits);
}

void
add(Buffer *buffer, const char *format,...)
{
	va_list		values;

	va_start(values, format);
	for (; *format; format++)
	{
		size_t		plain = strcspn(format, "%");

		add_bytes(buffer, format, plain);
		format += plain;
		if (*format == '\0' || *++format == '\0')
			break;
		switch (*format)
		{
			case 'h':
				add_html(buffer, va_arg(values, const char *));
				break;
			case 'u':
				add_url(buffer, va_arg(values, const char *));
				break;
			case 'r':
				add_raw(buffer, va_arg(values, const char *));
				break;
			case 'd':
				add_number(buffer, va_arg(values, int));
				break;
			case 'l':
				add_number(buffer, va_arg(values, long long));
				break;
			default:
				add_bytes(buffer, format, 1);
		}
	}
	va_end(values);
}
