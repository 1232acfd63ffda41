"""The examples of docs/how-to/shards.md, which the tests run: fenced blocks with a comment before them.

    server: shards, shard0, shard1 or router     where it is run: shards is all of them
    role: app             as that role (default: superuser)
    step: leave           not run with the others, but by its name
    until: yes            asked again until it returns true
    retry: yes            run again until it prints what it should

A text block directly after another is what that prints.
"""
import re

PAGE = 'docs/how-to/shards.md'
BLOCK = re.compile(r'^<!-- test\n(.*?)^-->\n```(\w+)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?', re.M | re.S)


class Example:
    def __init__(self, keys, language, text, expected):
        keys = dict(line.split(': ', 1) for line in keys.splitlines())
        self.server = keys['server']
        self.role = keys.get('role', 'postgres')
        self.step = keys.get('step')
        self.until = 'until' in keys
        self.retry = 'retry' in keys
        self.language, self.text, self.expected = language, text, expected or None

    @property
    def title(self):
        return self.step or self.text.split('\n', 1)[0]


def examples():
    with open(PAGE, encoding='utf-8') as file:
        return [Example(*match) for match in BLOCK.findall(file.read())]


def printed(text):
    """Without blank lines, and spaces at the ends of lines."""
    return [line.rstrip() for line in text.strip().splitlines() if line.strip()]
