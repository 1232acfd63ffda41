/*
 * request.c
 *		Parsing of what a request says.
 */
#include "request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "buffer.h"

/* The length of the UTF-8 sequence that begins there, at most so many bytes; 0: there is none. */
static size_t
utf8_sequence(const unsigned char *s, size_t left)
{
	size_t		length = s[0] < 0x80 ? 1 : s[0] >= 0xC2 && s[0] < 0xE0 ? 2 : (s[0] & 0xF0) == 0xE0 ? 3 : s[0] >= 0xF0 && s[0] < 0xF5 ? 4 : 0;

	if (length == 0 || length > left)
		return 0;
	for (size_t i = 1; i < length; i++)
		if ((s[i] & 0xC0) != 0x80)
			return 0;
	/* Overlong forms, surrogates, and what is beyond U+10FFFF. */
	if (length == 3 && ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F)))
		return 0;
	if (length == 4 && ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F)))
		return 0;
	return length;
}

bool
is_utf8(const char *text, size_t length)
{
	while (length > 0)
	{
		size_t		sequence = utf8_sequence((const unsigned char *) text, length);

		if (sequence == 0)
			return false;
		text += sequence;
		length -= sequence;
	}
	return true;
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The text without its escapes, to be freed; NULL if it is malformed. */
static char *
unescape(const char *text, size_t length)
{
	char	   *result = allocate(length + 1);
	size_t		n = 0;

	for (size_t i = 0; i < length; i++)
	{
		char		c = text[i] == '+' ? ' ' : text[i];

		if (c == '%')
		{
			int			high = i + 2 < length ? hex_digit(text[i + 1]) : -1;
			int			low = i + 2 < length ? hex_digit(text[i + 2]) : -1;

			if (high < 0 || low < 0)
			{
				free(result);
				return NULL;
			}
			c = (char) (high * 16 + low);
			i += 2;
		}
		result[n++] = c;
	}
	if (memchr(result, '\0', n) || !is_utf8(result, n))
	{
		free(result);
		return NULL;
	}
	return result;
}

static bool
add_param(Params *params, const char *text, size_t length)
{
	const char *equals = memchr(text, '=', length);
	size_t		name_length = equals ? (size_t) (equals - text) : length;
	Param	   *added;

	if (length == 0)
		return true;
	if (params->count == MAX_PARAMS)
		return false;
	added = &params->list[params->count];
	added->name = unescape(text, name_length);
	added->value = equals ? unescape(equals + 1, length - name_length - 1) : copy_text("");
	if (added->name && added->value)
	{
		params->count++;
		return true;
	}
	free(added->name);
	free(added->value);
	return false;
}

bool
params_parse(Params *params, const char *text, size_t length)
{
	const char *end = text + length;

	while (text < end)
	{
		const char *ampersand = memchr(text, '&', end - text);
		const char *stop = ampersand ? ampersand : end;

		if (!add_param(params, text, stop - text))
			return false;
		text = stop + 1;
	}
	return true;
}

void
params_free(Params *params)
{
	for (int i = 0; i < params->count; i++)
	{
		free(params->list[i].name);
		free(params->list[i].value);
	}
	params->count = 0;
}

const char *
param(const Params *params, const char *name)
{
	for (int i = 0; i < params->count; i++)
		if (strcmp(params->list[i].name, name) == 0)
			return params->list[i].value;
	return NULL;
}

const char *
param_given(const Params *params, const char *name)
{
	const char *value = param(params, name);

	return value && value[strspn(value, " ")] ? value : NULL;
}

char *
cookie_value(const char *header, const char *name)
{
	size_t		name_length = strlen(name);

	while (header && *header)
	{
		header += strspn(header, "; ");
		if (strncmp(header, name, name_length) == 0 && header[name_length] == '=')
			return copy_bytes(header + name_length + 1, strcspn(header + name_length + 1, "; "));
		header += strcspn(header, ";");
	}
	return NULL;
}

bool
parse_id(const char *text, long long *id)
{
	char	   *end;

	if (text == NULL || *text < '0' || *text > '9')
		return false;
	errno = 0;
	*id = strtoll(text, &end, 10);
	return errno == 0 && *end == '\0';
}

double
parse_number(const char *text)
{
	char	   *end;
	double		number = strtod(text, &end);

	return *end == '\0' ? number : 0;
}

/* Splits the port off. False: what is left is no name. */
static bool
host_name(const char *host, char *name, size_t size)
{
	size_t		length;

	if (host == NULL)
		return false;
	length = *host == '[' ? strcspn(host, "]") + (strchr(host, ']') != NULL) : strcspn(host, ":");
	if (length == 0 || length >= size || (host[length] != '\0' && host[length] != ':'))
		return false;
	if (host[length] == ':' && host[length + 1 + strspn(host + length + 1, "0123456789")] != '\0')
		return false;
	memcpy(name, host, length);
	name[length] = '\0';
	return true;
}

bool
host_allowed(const char *host, const char *const *names)
{
	static const char *const local[] = {"localhost", "127.0.0.1", "[::1]", NULL};
	char		name[256];

	if (!host_name(host, name, sizeof(name)))
		return false;
	for (const char *const *allowed = local; *allowed; allowed++)
		if (strcasecmp(name, *allowed) == 0)
			return true;
	for (; names && *names; names++)
		if (strcasecmp(name, *names) == 0)
			return true;
	return false;
}

bool
is_local_path(const char *path, const char *prefix)
{
	size_t		length = strlen(prefix);

	if (path == NULL || strncmp(path, prefix, length) != 0 || path[length] != '/')
		return false;
	/* "//host" and "/\host" are other servers; a control character could end the header. */
	if (path[0] == '/' && (path[1] == '/' || path[1] == '\\'))
		return false;
	for (const char *c = path; *c; c++)
		if ((unsigned char) *c <= ' ' || *c == '\\' || (unsigned char) *c >= 0x7F)
			return false;
	return true;
}
