#!/usr/bin/env perl
# The floors of src (src/README.md): a file includes headers of its own folder, and of folders that stand before it in this list. Within a folder
# modules include each other in no circle. And no line has more than 110 columns, unless a string that is not broken needs them; and every
# character is ASCII, in the SQL scripts too: the server may have an encoding, and a client one of its own, that lacks any other.
# And no two files have a static function of the same name: a backtrace names nothing else.
# Prints what is otherwise, and fails if anything is.
use strict;
use warnings;
use File::Basename qw(basename dirname);
use Text::Tabs qw(expand);

$Text::Tabs::tabstop = 4;
my @floors = qw(base shared process catalog guards table calls replica rules duties api executor scheduler testing);
# One module in two files.
my @circles = ('lane_hint lane_hint_table');
my $columns = 110;
my $long_string = qr/"(?:[^"\\]|\\.){60,}"/;

chdir dirname($0) . '/../..' or die "chdir: $!\n";
my %floor_of;
my %includes;
my @long;
my %files_of_static;
for my $floor (0 .. $#floors)
{
	foreach my $path (glob "src/$floors[$floor]/*.[ch]")
	{
		my $module = basename($path) =~ s/\.[ch]$//r;
		die "$path: there is another $module\n" if ($floor_of{$module} // $floor) != $floor;
		$floor_of{$module} = $floor;
		open my $file, '<:encoding(UTF-8)', $path or die "$path: $!\n";
		my $before = '';
		while (<$file>)
		{
			$files_of_static{$1}{$path} = 1 if $before =~ /^static\b/ && /^(\w+)\(/;
			$before = $_;
			push @{ $includes{$module}{$1} }, "$path:$." if /^#include "([a-z_]+)\.h"/ && $1 ne $module;
			chomp;
			push @long, "$path:$.: more than $columns columns\n" if length(expand($_)) > $columns && !/$long_string/;
		}
		close $file;
	}
}

my @other_characters;
foreach my $path (glob 'src/*.[ch] src/*/*.[ch] src/sql/*.sql src/sql/*/*.sql')
{
	open my $file, '<', $path or die "$path: $!\n";
	while (<$file>)
	{
		push @other_characters, "$path:$.: a character that is not ASCII\n" if /[^\x00-\x7f]/;
	}
	close $file;
}

my @found = (@long, @other_characters);
push @found, map { "$_: this folder is no floor\n" } grep { my $name = basename($_); -d $_ && $name ne 'sql' && !grep { $_ eq $name } @floors } glob 'src/*';
foreach my $module (sort keys %includes)
{
	foreach my $other (sort grep { exists $floor_of{$_} } keys %{ $includes{$module} })
	{
		push @found, map { "$_: $floors[ $floor_of{$module} ] includes $other.h of $floors[ $floor_of{$other} ], which is above it\n" } @{ $includes{$module}{$other} }
		  if $floor_of{$other} > $floor_of{$module};
	}
}

# A circle: modules that reach each other.
sub reached
{
	my ($module, $seen) = @_;
	foreach my $other (grep { exists $floor_of{$_} } keys %{ $includes{$module} })
	{
		reached($other, $seen) unless $seen->{$other}++;
	}
	return $seen;
}
my %reached = map { $_ => reached($_, {}) } keys %floor_of;
my %said;
foreach my $module (sort keys %floor_of)
{
	next unless $reached{$module}{$module};
	my $circle = join ' ', sort grep { $reached{$module}{$_} && $reached{$_}{$module} } keys %floor_of;
	push @found, "a circle of includes: $circle\n" unless $said{$circle}++ || grep { $_ eq $circle } @circles;
}
foreach my $name (sort keys %files_of_static)
{
	my @paths = sort keys %{ $files_of_static{$name} };
	push @found, "static function $name() in several files: @paths\n" if @paths > 1;
}
print @found;
exit(@found ? 1 : 0);
