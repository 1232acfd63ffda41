# What packagers read agrees with the extension itself: META.json (PGXN, https://pgxn.org/spec), debian/.
use strict;
use warnings;

use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = $ENV{TESTDIR} // '.';
my $json = slurp_file("$root/META.json");
my ($version) = slurp_file("$root/queue_jobs.control") =~ /^default_version = '(.*)'$/m;
my ($oldest) = slurp_file("$root/src/compat.h") =~ /^#if PG_VERSION_NUM < (\d+)0000\n#error/m;
my $semantic = qr/^(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-[A-Za-z][0-9A-Za-z-]*)?$/;
like($version, $semantic, 'a semantic version');

# ---- META.json, as `make dist` puts it into the archive ----

$json =~ s/\@EXTVERSION\@/$version/g;
my $meta = eval { decode_json($json) };
is($@, '', 'META.json is JSON');
BAIL_OUT('META.json is not') unless ref $meta eq 'HASH';

ok(defined $meta->{$_}, "it has $_") for qw(name version abstract maintainer license provides meta-spec);
my @known = qw(name version abstract maintainer license provides meta-spec description generated_by no_index prereqs
  release_status resources tags);
is(join(' ', grep { my $key = $_; $key !~ /^x_/i && !grep { $_ eq $key } @known } sort keys %$meta), '', '… and nothing unknown');

is($meta->{name}, 'queue_jobs', 'name');
is($meta->{version}, $version, 'version');
is($meta->{license}, 'postgresql', 'license');
is($meta->{'meta-spec'}{version}, '1.0.0', 'version of the specification');
like($meta->{release_status}, qr/^(?:stable|testing|unstable)$/, 'release_status');
is(scalar(grep { ref || !/^[^\/\\[:cntrl:]]{1,255}$/ } @{ $meta->{tags} }), 0, 'tags');

is(join(' ', sort keys %{ $meta->{provides} }), 'queue_jobs', 'provides the one extension');
my $extension = $meta->{provides}{queue_jobs};
is($extension->{version}, $version, '… of this version');
ok(-e "$root/$extension->{$_}", "… whose $_ exists") for qw(file docfile);
is($meta->{prereqs}{runtime}{requires}{PostgreSQL}, "$oldest.0.0", 'the oldest server that it can be built for');

# ---- debian/ ----

my $control = slurp_file("$root/debian/control");
my $template = slurp_file("$root/debian/control.in");
my ($package) = $control =~ /^(Package: .*)\z/ms;
my ($expected) = $template =~ /^(Package: .*)\z/ms;
my %generated = map { $_ => 1 } $control =~ /^Package: postgresql-(\d+)-queue-jobs$/mg;
is($package, join("\n", map { $expected =~ s/PGVERSION/$_/gr } sort { $a <=> $b } keys %generated),
	'debian/control is what pg_buildext updatecontrol makes of control.in');
like(slurp_file("$root/debian/changelog"), qr/\Aqueue-jobs \(\Q$version\E-\d+\) /, 'debian/changelog has the version');
is(slurp_file("$root/debian/pgversions"), "$oldest+\n", 'debian/pgversions has the oldest server');
ok(-x "$root/debian/$_", "debian/$_ can be executed") for qw(rules tests/installcheck);

done_testing();
