#!/usr/bin/env perl
# How much there is in src: modules (a header is one), external functions, files, lines, static functions whose name several files have, and SQL
# functions outside of api. With --headers a line for each header: how many external functions, lines of its .c file, files that include it.
use strict;
use warnings;
use File::Basename qw(basename dirname);

chdir dirname($0) . '/../..' or die "chdir: $!\n";
my (%externs, %lines, %files_of_static, %users, %file_of_sql);
my @paths = grep { !/attribute_numbers/ } glob 'src/*.[ch] src/*/*.[ch]';
foreach my $path (@paths)
{
	my $module = basename($path) =~ s/\.[ch]$//r;
	my $before = '';
	$externs{$module} //= 0 if $path =~ /h$/;
	open my $file, '<', $path or die "$path: $!\n";
	while (<$file>)
	{
		$lines{$path}++;
		$externs{$module}++ if $path =~ /h$/ && /^extern [^(]*\w\(/;
		$users{$1}++ if /^#include "([a-z_]+)\.h"/;
		$files_of_static{$1}{$path} = 1 if $before =~ /^static\b/ && /^(\w+)\(/;
		$file_of_sql{$1} = $path if /^PG_FUNCTION_INFO_V1\((\w+)\)/;
		$before = $_;
	}
	close $file;
}

sub sum { my $sum = 0; $sum += $_ for @_; return $sum }
printf "%d modules, %d externs, %d files, %d lines of .c, %d of .h, %d names of static functions in several files, %d of %d SQL functions outside of api\n",
  scalar keys %externs, sum(values %externs), scalar @paths, sum(map { $lines{$_} } grep { /c$/ } @paths), sum(map { $lines{$_} } grep { /h$/ } @paths),
  scalar(grep { keys %$_ > 1 } values %files_of_static), scalar(grep { !m{src/api/} } values %file_of_sql), scalar keys %file_of_sql;
if (@ARGV && $ARGV[0] eq '--headers')
{
	foreach my $header (grep { /h$/ } @paths)
	{
		my $module = basename($header) =~ s/\.h$//r;
		printf "%-36s %3d externs %4d lines %3d users\n", $header, $externs{$module}, $lines{ $header =~ s/h$/c/r } // 0, $users{$module} // 0;
	}
}
