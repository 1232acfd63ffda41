#!/usr/bin/perl
# Checks a META.json by the rules of the PGXN Meta Spec 1.0 (https://pgxn.org/spec/), all of them: prints what it breaks, and fails.
#
#   meta.pl FILE
use strict;
use warnings;

use JSON::PP;

my @faults;
my $number = qr/(?:0|[1-9]\d*)/;
my $version = qr/$number\.$number\.$number(?:-[A-Za-z][0-9A-Za-z-]*)?/;
my $range = qr/(?:(?:[=!]=|[<>]=?)\s*)?(?:$version|0)/;
my $uri = qr/[a-z][a-z0-9+.-]*:\S+/i;
my $licenses = qr/agpl_3|apache_1_1|apache_2_0|artistic_1|artistic_2|bsd|freebsd|gfdl_1_2|gfdl_1_3|gpl_1|gpl_2|gpl_3|lgpl_2_1|lgpl_3_0|mit|mozilla_1_0|mozilla_1_1
	|openssl|perl_5|postgresql|qpl_1_0|ssleay|sun|zlib|open_source|restricted|unrestricted|unknown/x;

sub fault { push @faults, join '', @_; return; }

# ---- kinds of values; each is given the value and where it stands ----

sub string
{
	my ($value, $at) = @_;
	fault("$at is no string, or empty") if !defined $value || ref $value || $value eq '';
	return;
}

sub matching
{
	my ($pattern, $what) = @_;
	return sub { my ($value, $at) = @_; fault("$at is not $what") if !defined $value || ref $value || $value !~ /\A(?:$pattern)\z/; return };
}

# A list of them; one alone stands for a list of one.
sub list
{
	my ($kind) = @_;
	return sub {
		my ($value, $at) = @_;
		return $kind->($value, $at) if ref $value ne 'ARRAY';
		fault("$at is empty") unless @$value;
		$kind->($value->[$_], "$at\[$_]") for 0 .. $#$value;
		return;
	};
}

# An object of any keys of one kind, with values of another.
sub dictionary
{
	my ($key_kind, $kind) = @_;
	return sub {
		my ($value, $at) = @_;
		return fault("$at is no object, or empty") if ref $value ne 'HASH' || !%$value;
		for my $key (sort keys %$value) { $key_kind->($key, "key \"$key\" of $at"); $kind->($value->{$key}, "$at.$key") }
		return;
	};
}

# An object of these keys, "name!" for one that it must have. Others begin with x_.
sub object
{
	my (%keys) = @_;
	return sub {
		my ($value, $at) = @_;
		return fault("$at is no object") if ref $value ne 'HASH';
		for my $key (map { /^(.*)!$/ } keys %keys) { fault("$at lacks $key") unless exists $value->{$key} }
		for my $key (sort keys %$value)
		{
			my $kind = $keys{$key} // $keys{"$key!"};
			if ($kind) { $kind->($value->{$key}, "$at.$key") }
			elsif ($key !~ /^x_/i) { fault("$at has a key $key, which the specification does not know") }
		}
		return;
	};
}

# ---- the specification ----

my $term = matching(qr/[^\s\/\\[:cntrl:]]{2,}/, 'a term: two or more characters, no space, slash, backslash or control character');
my $is_version = matching($version, 'a semantic version');
my $is_uri = matching($uri, 'a URI');
my $license_name = matching($licenses, 'the name of a license that the specification has');
my $relationship = dictionary($term, matching(qr/$range(?:,\s*$range)*/, 'a range of versions'));
my $phase = object(map { $_ => $relationship } qw(requires recommends suggests conflicts));

my $spec = object(
	'name!' => $term,
	'version!' => $is_version,
	'abstract!' => \&string,
	'maintainer!' => list(\&string),
	'license!' => sub { ref $_[0] eq 'HASH' ? dictionary(\&string, $is_uri)->(@_) : list($license_name)->(@_) },
	'provides!' => dictionary($term, object('file!' => \&string, 'version!' => $is_version, abstract => \&string, docfile => \&string)),
	'meta-spec!' => object('version!' => matching(qr/1\.0\.\d+/, 'version 1.0.z of the specification'), url => matching(qr{https?://pgxn\.org/(?:meta/spec\.txt|spec/)}, 'the specification\'s address')),
	description => \&string,
	generated_by => \&string,
	tags => list(matching(qr/[^\/\\[:cntrl:]]{1,255}/, 'a tag: 1 to 255 characters, no slash, backslash or control character')),
	no_index => object(map { $_ => list(\&string) } qw(file directory)),
	prereqs => object(map { $_ => $phase } qw(configure build test runtime develop)),
	release_status => matching(qr/stable|testing|unstable/, 'stable, testing or unstable'),
	resources => object(
		homepage => $is_uri,
		bugtracker => object(web => $is_uri, mailto => matching(qr/\S+@\S+/, 'an address')),
		repository => object(url => $is_uri, web => $is_uri, type => matching(qr/[a-z]+/, 'a lower-case word'))));

open my $in, '<:raw', $ARGV[0] or die "$ARGV[0]: $!\n";
my $json = do { local $/; <$in> };
my $meta = eval { JSON::PP->new->utf8->decode($json) };
if (defined $meta) { $spec->($meta, 'META') }
else { fault("no JSON: $@") }
print map { "$_\n" } @faults;
exit(@faults ? 1 : 0);
