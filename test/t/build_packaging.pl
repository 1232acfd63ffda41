# What packagers read agrees with the extension itself: META.json (PGXN, https://pgxn.org/spec), debian/. What `make install` installs,
# `make uninstall` removes; `make dist` makes archives that are whole.
use strict;
use warnings;

use File::Copy 'copy';
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = $ENV{TESTDIR} // '.';
my $json = slurp_file("$root/META.json");
my ($version) = slurp_file("$root/queue_jobs.control") =~ /^default_version = '(.*)'$/m;
my ($oldest) = slurp_file("$root/src/base/compat.h") =~ /^#if PG_VERSION_NUM < (\d+)0000\n#error/m;
my $semantic = qr/^(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-[A-Za-z][0-9A-Za-z-]*)?$/;
like($version, $semantic, 'a semantic version');

# ---- META.json, as `make dist` puts it into the archive ----

$json =~ s/\@EXTVERSION\@/$version/g;
my $meta = eval { decode_json($json) };
is($@, '', 'META.json is JSON');
die 'META.json is not' unless ref $meta eq 'HASH';

# Prints each rule of the PGXN Meta Spec that a META.json breaks.
sub broken_rules
{
	my ($text) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/META.json';

	append_to_file($file, $text);
	return qx('$^X' '$root/test/packages/meta.pl' '$file');
}

is(broken_rules($json), '', '… and keeps to the rules of the PGXN Meta Spec');
like(broken_rules($json =~ s/"\Q$version\E"/"1"/r), qr/^META\.version is not a semantic version$/m, '… which are checked');
like(broken_rules($json =~ s/"tags"/"tag"/r), qr/^META has a key tag, /m, '… all of them');
is($meta->{name}, 'queue_jobs', 'name');
is($meta->{version}, $version, 'version');
is($meta->{license}, 'postgresql', 'license');

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

# ---- make install, make uninstall ----

my $folder = PostgreSQL::Test::Utils::tempdir();
my $pg_config = $ENV{SERVER_PG_CONFIG} // 'pg_config';

# Runs a command in a folder, and returns what it printed; fails with that.
sub run_in
{
	my ($directory, @command) = @_;
	my $output = '';

	# What a make above says of its own targets is not for this one.
	local %ENV = %ENV;
	delete @ENV{qw(MAKEFLAGS MFLAGS MAKELEVEL DESTDIR)};
	my $done = IPC::Run::run([ 'env', '-C', $directory, @command ], '>', \$output, '2>&1');
	ok($done, "@command") or diag($output);
	return $output;
}

sub files
{
	my ($directory) = @_;
	return sort map { s/^\Q$directory\E\///r } split /\n/, qx(find '$directory' -type f);
}

# Two lists of files; only what differs is printed.
sub same_files
{
	my ($got, $expected, $name) = @_;
	my %got = map { $_ => 1 } @$got;
	my %expected = map { $_ => 1 } @$expected;

	is(join(' ', grep { !$got{$_} } @$expected), '', "$name: nothing is missing");
	is(join(' ', grep { !$expected{$_} } @$got), '', "$name: nothing is too much");
	return;
}

run_in($root, 'make', '-s', "PG_CONFIG=$pg_config", "DESTDIR=$folder/installed", 'install');
my %installed = map { s/.*\///r => $_ } files("$folder/installed");
ok($installed{$_}, "installs $_") for 'queue_jobs.so', 'queue_jobs.control', map { s/.*\///r } glob("$root/src/sql/queue_jobs--*.sql");
is(join(' ', sort grep { /^queue_jobs--/ } keys %installed), "queue_jobs--0.1.0--$version.sql queue_jobs--0.1.0.control queue_jobs--0.1.0.sql queue_jobs--$version.sql",
	'scripts to create and to update it');

# In folders as they are here, or links from one to the other would be broken.
my ($docs) = map { s/\/CHANGELOG\.md$//r } grep { /\/CHANGELOG\.md$/ } values %installed;
same_files([ files("$folder/installed/$docs") ], [ qw(README.md CHANGELOG.md LICENSE), map { my $part = $_; map { "$part/$_" } files("$root/$part") } qw(docs bridge) ], 'documentation');
like($docs, qr/\/extension\/queue_jobs$/, '… in a folder of its own');

run_in($root, 'make', '-s', "PG_CONFIG=$pg_config", "DESTDIR=$folder/installed", 'uninstall');
is(join("\n", files("$folder/installed")), '', 'uninstall removes all of it');
ok(!-e "$folder/installed/$docs", '… and its folder');

# ---- make dist ----

SKIP:
{
	my $needs = join ' and ', grep { system("command -v $_ >/dev/null") != 0 } qw(git unzip tar);
	skip "no $needs", 1 if $needs;

	# A repository of what git would have of this tree.
	mkdir "$folder/$_" for qw(repository dist zip source);
	system_or_bail('sh', '-c', "cd '$root' && tar -c --exclude=./.git --exclude=./tmp_* --exclude=./output_iso --exclude=./results --exclude='*.o' --exclude='*.so' . | tar -x -C '$folder/repository'");
	my @git = ('git', '-c', 'user.name=test', '-c', 'user.email=test@localhost', '-c', 'init.defaultBranch=main', '-c', 'safe.directory=*');
	run_in("$folder/repository", @git, 'init', '-q');
	run_in("$folder/repository", @git, 'add', '-A');
	run_in("$folder/repository", @git, 'commit', '-q', '-m', 'as it is here');
	my @tracked = sort split /\n/, run_in("$folder/repository", @git, 'ls-files');

	run_in("$folder/repository", 'make', '-s', "PG_CONFIG=$pg_config", 'dist');
	is(run_in("$folder/repository", @git, 'status', '--porcelain'), '', 'git ignores what it makes');

	# For PGXN, and for dpkg-source.
	my $name = "queue_jobs-$version";
	my %archives = (zip => "$name.zip", source => "queue-jobs_$version.orig.tar.gz");
	run_in("$folder/zip", 'unzip', '-q', "$folder/repository/$archives{zip}");
	run_in("$folder/source", 'tar', '-xzf', "$folder/repository/$archives{source}");
	for my $kind (sort keys %archives)
	{
		same_files([ files("$folder/$kind") ], [ map { "$name/$_" } @tracked ], "$archives{$kind} has the repository's files in one folder");
		is(decode_json(slurp_file("$folder/$kind/$name/META.json"))->{version}, $version, '… and the version in META.json');
	}
	like(run_in("$folder/source/$name", 'make', '-n', "PG_CONFIG=$pg_config"), qr/gcc|cc/, 'it can be built from there, without git');

	skip 'no dpkg-source', 1 if system('command -v dpkg-source >/dev/null') != 0;
	copy("$folder/repository/$archives{source}", "$folder/source");
	run_in("$folder/source", 'dpkg-source', '-b', $name);
	is(join(' ', grep { !/\// } files("$folder/source")),
		"queue-jobs_$version-1.debian.tar.xz queue-jobs_$version-1.dsc queue-jobs_$version.orig.tar.gz", 'dpkg-source makes a source package of it');
}

done_testing();
