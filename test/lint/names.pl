#!/usr/bin/env perl
# What the READMEs and headers of src and test name is there: each `name()`, in code and not in a comment alone; each file, by its last name; and where a README
# says "`name()` (file.c)", the name in that file. And a comment of src/ names its subject: it begins with none of the words below;
# each static function has a comment. Prints what is not so, and fails if anything is not.
use strict;
use warnings;
use File::Basename qw(basename dirname);
use File::Find qw(find);

chdir dirname($0) . '/../..' or die "chdir: $!\n";
# Made at build; the server's own; a file for each language; a key of args.
my %elsewhere = map { $_ => 1 } qw(attribute_numbers.h s_lock.h LANGUAGE.pl args.sql);

my %text;
find({ no_chdir => 1, wanted => sub {
	return unless -f && /\.(?:[ch]|sql|pl|pm|py|mjs|js|rb|sh|spec|awk|md)$/;
	open my $file, '<', $_ or die "$_: $!\n";
	local $/;
	$text{$_} = <$file>;
} }, qw(src test web clients bridge sql monitoring docs));

my (%files, %called, %words);
foreach my $path (keys %text)
{
	my $code = $text{$path};
	my $name = basename($path);

	$files{$name} = 1;
	next if $path =~ /\.md$/;
	$code =~ s{/\*.*?\*/}{}gs if $path =~ /\.[ch]$/;
	$called{$1} = 1 while $code =~ /(\w+)\s*\(/g;
	$words{$name}{$1} = 1 while $code =~ /(\w+)/g;
}

my %found;
foreach my $path (grep { m{^(?:src|test)/(?:.*/)?README\.md$|^(?:src|test)/.*\.h$} } keys %text)
{
	my $said = $path =~ /\.h$/ ? join("\n", $text{$path} =~ m{/\*(.*?)\*/}gs) : $text{$path};

	while ($said =~ /(?<![\w.…])(\w+)\(\)/g)
	{
		$found{"$path: there is no $1()\n"} = 1 if !$called{$1};
	}
	while ($said =~ /`(\w+)\(\)` (?:in `\w+\(\)` )?\((\w+\.c)\)/g)
	{
		$found{"$path: no $1() in $2\n"} = 1 if $words{$2} && !$words{$2}{$1};
	}
	while ($said =~ m{(?<![\w*])([\w.]+\.(?:[ch]|pl|pm|sql|spec|sh|awk|py))\b}g)
	{
		$found{"$path: there is no file $1\n"} = 1 if !$files{$1} && !$elsewhere{$1};
	}
}

foreach my $path (grep { m{^src/.*\.[ch]$} } keys %text)
{
	while ($text{$path} =~ m{/\*[\s*-]*((?:One|Its?|The\s+same|What|Whatever|Of|They|Those|Such|Whoever)\b[^\n]{0,40})}g)
	{
		$found{"$path: a comment without its subject: $1\n"} = 1;
	}
}
# Each static function has a line above it.
foreach my $path (grep { m{^src/.*\.c$} } keys %text)
{
	while ($text{$path} =~ m#([^\n]*)\nstatic [^;={}()\n]*\n(\w+)\([^;{]*?\)\n\{#g)
	{
		$found{"$path: $2() without a line that says what it does\n"} = 1 if $1 !~ m{\*/\s*$};
	}
}
print sort keys %found;
exit(%found ? 1 : 0);
