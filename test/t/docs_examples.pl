# Runs every example of README.md, docs/tutorial.md, docs/how-to/claimants.md and then the other files of docs, in the order in which they stand, on one server, in a
# database "shop".
# The matrix runs it once.
#
# Fenced blocks are examples by their language: sql (through psql), python and js (programs that run until they have done
# what they should), sh and console (lines with make: is there such a target? with "run": executed), ini and yaml (settings). A text block
# directly after another is what that prints; "…" stands for anything. What a block needs besides is said in a comment before it,
# which no reader sees:
#
#   <!-- test
#   role: app             from here on, psql and programs connect as that role (superuser: the server's)
#   as: web               this block only
#   retry: yes            run again until it prints what it should
#   error: 55000          fails with that SQLSTATE
#   run: yes              a sh block that is executed
#   needs: EXTENSION      skipped where the server does not have it
#   passes: pytest        is a test, which passes (rspec, node: likewise)
#   before: SQL           as that role, before a program starts
#   then: SQL             …while it runs
#   until: SQL            waits until it returns true
#   -->
#
# Python needs the psycopg2 or psycopg that the program imports (Debian: python3-psycopg2, python3-psycopg), Node pg (npm install pg, found by NODE_PATH; Debian: node-pg). What
# is not there is skipped, and nothing is installed.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $root = $ENV{TESTDIR} // '.';
my $db = 'shop';
my @first = map { "$root/$_" } qw(README.md docs/tutorial.md docs/how-to/claimants.md);
# The pages of the clients are tested with these (clients/*/test), the bridge's and the shards', with servers of their own, by servers_bridge.pl and servers_shards.pl.
my @documents = (@first, grep { my $file = $_; !/how-to\/(python|django|node|ruby|rails|bridge|shards)\.md$/ && !grep { $_ eq $file } @first } sort glob("$root/docs/*.md $root/docs/explanation/*.md $root/docs/how-to/*.md $root/docs/reference/*.md"));
my ($node, $role, %programs);

# ---- reading ----

# The blocks of a document: { file, line, language, text, expected, steps, and the comment's keys }.
sub blocks
{
	my ($file) = @_;
	my $name = $file =~ s/^\Q$root\E\///r;
	my (@blocks, $block, $comment, $after);

	open my $in, '<:encoding(UTF-8)', $file or die "$file: $!";
	while (my $line = <$in>)
	{
		chomp $line;
		if ($block)
		{
			if ($line =~ /^```$/)
			{
				if ($block->{language} eq 'text' && $after)
				{
					$after->{expected} = $block->{text};
				}
				else
				{
					push @blocks, $block;
				}
				$after = $block->{language} eq 'text' ? undef : $block;
				undef $block;
			}
			else
			{
				$block->{text} .= "$line\n";
			}
		}
		elsif ($line =~ /^```(\w*)$/)
		{
			$block = { %{ $comment // {} }, file => $name, line => $., language => $1, text => '' };
			undef $comment;
		}
		elsif ($line eq '<!-- test')
		{
			$comment = { steps => [] };
			while (defined($line = <$in>) && $line !~ /^-->/)
			{
				my ($key, $value) = $line =~ /^(\w+): (.*\S)\s*$/ or die "$file, line $.: not \"key: value\"";
				if ($key =~ /^(?:before|then|until)$/) { push @{ $comment->{steps} }, [ $key, $value ] }
				else { $comment->{$key} = $value }
			}
		}
		elsif ($line ne '')
		{
			undef $after;
		}
	}
	die "$file: a block does not end" if $block;
	return @blocks;
}

# The names by which GitHub's links find the headings of a document.
sub anchors
{
	my ($file) = @_;
	my $text = PostgreSQL::Test::Utils::slurp_file($file) =~ s/^```.*?^```//gmsr;
	my (%anchors, %count);

	foreach my $heading ($text =~ /^#+ (.*)$/gm)
	{
		my $anchor = lc($heading =~ s/\[([^\]]*)\]\([^)]*\)/$1/gr =~ s/[^\w -]//gr) =~ tr/ /-/r;
		my $earlier = $count{$anchor}++;
		$anchors{ $earlier ? "$anchor-$earlier" : $anchor } = 1;
	}
	return \%anchors;
}

# Whether an output is as expected: "…" stands for anything, and spaces at the end of lines are not seen.
sub matches
{
	my ($got, $expected) = @_;

	$_ = join("\n", grep { $_ ne '' } map { s/\s+$//r } split /\n/) for $got, $expected;
	my $pattern = join '.*?', map { quotemeta } split /…/, $expected, -1;
	return $got =~ /^$pattern$/s;
}

# ---- running ----

sub connection
{
	my ($as) = @_;

	return (PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => $db, PGUSER => $as,
		PGCLIENTENCODING => 'UTF8', PYTHONIOENCODING => 'UTF-8');
}

# Runs a command with an input; returns its exit status and what it printed, errors included, all by one pipe: two would be read in pieces,
# one between another's.
sub run_program
{
	my ($as, $input, @command) = @_;
	my ($stdin, $output) = ($input, '');

	utf8::encode($stdin);
	local %ENV = (%ENV, connection($as));
	IPC::Run::run(\@command, '<', \$stdin, '>', \$output, '2>&1');
	my $status = $? >> 8;
	utf8::decode($output);
	return ($status, $output);
}

sub run_sql
{
	my ($block, $as) = @_;

	return run_program($as, $block->{text}, 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1') unless $block->{error};

	my (undef, $output) = run_program($as, "$block->{text}\n\\echo :LAST_ERROR_SQLSTATE\n", 'psql', '-Xq');
	my $status = $output =~ s/^\Q$block->{error}\E\n//m ? 0 : 1;
	return ($status, $output);
}

sub test_sql
{
	my ($block, $as, $name) = @_;
	my $deadline = time + $PostgreSQL::Test::Utils::timeout_default;

	while (1)
	{
		my ($status, $output) = run_sql($block, $as);
		my $good = $status == 0 && (!defined $block->{expected} || matches($output, $block->{expected}));

		if (!$good && $block->{retry} && time < $deadline)
		{
			sleep 1;
			next;
		}
		ok($good, $name)
		  or diag("status $status, printed:\n$output", defined $block->{expected} ? "expected:\n$block->{expected}" : '');
		last;
	}
}

# The program that runs a language with its driver, or why there is none.
sub find_program
{
	my ($language, $driver) = @_;

	if ($language eq 'python')
	{
		my $python = python_with($driver);
		return $python ? { command => [$python] } : { missing => "no Python with $driver (Debian: python3-$driver)" };
	}
	my @paths = grep { defined && $_ ne '' } ($ENV{NODE_PATH}, '/usr/share/nodejs', '/usr/lib/node_modules', '/usr/local/lib/node_modules');
	for my $js ('node', 'nodejs')
	{
		local $ENV{NODE_PATH} = join ':', @paths;
		return { command => [$js], path => $ENV{NODE_PATH} } if run_quietly($js, '-e', "require('pg')");
	}
	return { missing => 'no Node with pg (npm install pg and NODE_PATH; Debian: node-pg)' };
}

# Starts the program, goes through the steps, and stops it.
sub test_program
{
	my ($block, $as, $name) = @_;
	my ($driver) = $block->{text} =~ /^import (psycopg2?)$/m;
	my $program = $programs{"$block->{language} " . ($driver // '')} //= find_program($block->{language}, $driver);
	my @steps = @{ $block->{steps} // [] };
	my ($harness, $output) = (undef, '');

  SKIP:
	{
		diag("skipped $name: $program->{missing}") if $program->{missing};
		skip $program->{missing}, 1 if $program->{missing};

		my $file = PostgreSQL::Test::Utils::tempdir() . "/example.$block->{language}";
		my $text = $block->{text};
		utf8::encode($text);
		PostgreSQL::Test::Utils::append_to_file($file, $text);

		my $done = 1;
		for my $step (@steps, [ 'end', '' ])
		{
			my ($what, $sql) = @$step;

			if ($what ne 'before' && !$harness)
			{
				local %ENV = (%ENV, connection($as), defined $program->{path} ? (NODE_PATH => $program->{path}) : ());
				$harness = IPC::Run::start([ @{ $program->{command} }, $file ], '>', \$output, '2>&1');
			}
			if ($what eq 'until')
			{
				$done = $node->poll_query_until($db, $sql) or last;
			}
			elsif ($what ne 'end')
			{
				my ($status, $printed) = run_program($as, $sql, 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1');
				$done = $status == 0 or $output .= $printed, last;
			}
		}
		my $alive = $harness && $harness->pumpable;
		$harness->kill_kill if $harness;
		ok($done && $alive && @steps > 0, $name) or diag(@steps ? "printed:\n$output" : 'no steps are given for it');
	}
}

# The command that runs a test, or why there is none.
sub find_runner
{
	my ($runner) = @_;

	if ($runner eq 'pytest')
	{
		my $python = python_with('psycopg');
		return { command => [ $python, '-m', 'pytest', '-q', '-p', 'no:cacheprovider' ] } if $python && run_quietly($python, '-c', 'import pytest');
		return { missing => 'no pytest with psycopg (Debian: python3-pytest, python3-psycopg)' };
	}
	return find_program('js') if $runner eq 'node';
	return { command => ['rspec'] } if run_quietly('rspec', '--version') && run_quietly('ruby', '-rpg', '-e', '0');
	return { missing => 'no RSpec with pg (Debian: ruby-rspec, ruby-pg)' };
}

# Runs an example that is a test.
sub test_test
{
	my ($block, $as, $name) = @_;
	my $runner = find_runner($block->{passes});

  SKIP:
	{
		diag("skipped $name: $runner->{missing}") if $runner->{missing};
		skip $runner->{missing}, 1 if $runner->{missing};

		my $extension = $block->{language} eq 'python' ? 'py' : $block->{language};
		my $file = PostgreSQL::Test::Utils::tempdir() . "/test_example.$extension";
		PostgreSQL::Test::Utils::append_to_file($file, $block->{text});
		local %ENV = (%ENV, defined $runner->{path} ? (NODE_PATH => $runner->{path}) : ());
		my ($status, $output) = run_program($as, '', @{ $runner->{command} }, $file);
		is($status, 0, $name) or diag($output);
	}
}

# Lines that call make must name targets that there are; a block to be run is given to bash.
sub test_shell
{
	my ($block, $as, $name) = @_;

	if ($block->{run})
	{
		my ($status, $output) = run_program($as, $block->{text}, 'bash', '-e');
		is($status, 0, $name) or diag($output);
		return;
	}
	for my $line (split /\n/, $block->{text})
	{
		next unless $line =~ /^(?:\$ )?(make\b[^#]*)/;
		for my $make (split /&&/, $1)
		{
			my ($status, $output) = run_program($as, '', 'bash', '-c', "cd '$root' && exec $make -n");
			is($status, 0, "$name: " . ($make =~ s/[^ -~]/?/gr)) or diag($output);
		}
	}
}

sub test_block
{
	my ($block) = @_;
	my $name = "$block->{file}:$block->{line} ($block->{language})";
	my $superuser = $node->safe_psql('postgres', 'SELECT current_user');

	$role = $block->{role} if $block->{role};
	my $as = $block->{as} // $role;
	$as = $superuser if $as eq 'superuser';

	if ($block->{passes}) { test_test($block, $as, $name) }
	elsif ($block->{language} eq 'sql') { test_sql($block, $as, $name) }
	elsif ($block->{language} =~ /^(?:python|js)$/) { test_program($block, $as, $name) }
	elsif ($block->{language} =~ /^(?:sh|console)$/) { test_shell($block, $as, $name) }
	elsif ($block->{language} !~ /^(?:text|ini|yaml|mermaid)$/) { fail("$name: what language is that?") }
}

# ---- the tables of docs/reference ----

# First cells of the rows of a table, from the first "| " after a heading.
sub first_cells
{
	my ($readme, $heading) = @_;
	my ($table) = $readme =~ /\Q$heading\E.*?\n\|[-|]+\|\n((?:\|[^\n]*\n)+)/s or return;

	return map { my ($cell) = /^\|\s*(.*?)\s*\|/; $cell } split /\n/, $table;
}

sub words
{
	return map { /`(\w[\w.]*)/g } @_;
}

# A heading for each function, and no parameter that a function has not.
sub test_functions
{
	my ($page) = @_;
	my %documented = map { $_ => 1 } $page =~ /^### (\w+)(?:, of a claimant)?$/mg;
	my (%parameters, @unknown);

	foreach my $row (split /\n/, $node->safe_psql($db, <<'SQL'))
SELECT proname, array_to_string(proargnames, ' ') FROM pg_proc
WHERE pronamespace = 'queue_jobs'::regnamespace
SQL
	{
		my ($name, $names) = split /\|/, $row;
		$parameters{$name}{$_} = 1 foreach '', split / /, $names // '';
	}
	is_deeply([ sort keys %documented ], [ sort keys %parameters ], 'every function is in the reference, and no other');
	while ($page =~ /^### \w+.*\n\n`(?:CALL )?(\w+)\(([\w\[\], ]*)/mg)
	{
		my ($name, $names) = ($1, $2);
		push @unknown, grep { !$parameters{$name}{$_} } split /, /, $names =~ tr/[]//dr;
	}
	is_deeply(\@unknown, [], '... with its parameters');
	return;
}

sub test_tables
{
	my %page = map { $_ => PostgreSQL::Test::Utils::slurp_file("$root/docs/reference/$_.md") } qw(settings functions views tables);
	my ($rows) = $page{settings} =~ /\n\|[-|]+\|\n((?:\|[^\n]*\n)+)/s;
	my %set_in = ('server start' => 'postmaster', configuration => 'sighup', session => 'user', database => 'user', superuser => 'superuser');
	my @documented;

	for (split /\n/, $rows)
	{
		my (undef, $name, $default, $context) = split /\s*\|\s*/;
		push @documented, join '|', $name =~ s/`//gr, $default, $set_in{$context} // $context;
	}
	my @settings = split /\n/, $node->safe_psql($db, <<'SQL');
SELECT name || '|' || CASE WHEN unit = 'ms' THEN boot_val::int / 1000 || 's'
	WHEN name = 'queue_jobs.max_executors' AND boot_val::int = least(greatest(current_setting('max_worker_processes')::int - 12, 4), 100) THEN '4'
	ELSE coalesce(boot_val, '') END || '|' || context
FROM pg_settings WHERE name LIKE 'queue_jobs.%'
SQL
	is(join("\n", sort @documented), join("\n", sort @settings), 'settings are documented as they are');

	test_functions($page{functions});
	my $reference = $page{functions} . $page{views};
	is(join(' ', sort(words(first_cells($reference, '| option of')), 'name')),
		$node->safe_psql($db, "SELECT string_agg(n, ' ' ORDER BY n COLLATE \"C\") FROM pg_proc, unnest(proargnames) AS n
		                        WHERE oid = 'queue_jobs.define_worker'::regproc"),
		'every option of define_worker() is in its table');

	is(join(' ', sort map { /^`(\w+)`$/ } first_cells($page{views}, '# Views')),
		$node->safe_psql($db, q{SELECT string_agg(relname, ' ' ORDER BY relname COLLATE "C") FROM pg_class WHERE relnamespace = 'queue_jobs'::regnamespace AND relkind IN ('v', 'm')}),
		'every view is in the reference, and no other');
	is($node->safe_psql($db, PostgreSQL::Test::Utils::slurp_file("$root/test/lib/tables.sql")) . "\n", $page{tables}, 'so is every table (psql -XqAt -f test/lib/tables.sql >docs/reference/tables.md)');
	my ($job) = $reference =~ /^\| `job` \|(.*)$/m;
	is(join(' ', words($job =~ s/ \([^)]*\)//gr)),
		$node->safe_psql($db, "SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute
		                        WHERE attrelid = 'queue_jobs.job'::regclass AND attnum > 0"),
		'so are the columns of job');

	my %drawn = map { $_ => 1 } $page{views} =~ /^ +(\w+ --> \w+):/mg;
	is_deeply([ sort keys %drawn ], [ sort split /\n/, $node->safe_psql($db, q{SELECT from_state || ' --> ' || to_state FROM queue_jobs.transitions()}) ],
		'the transitions between states are drawn');

	# Whatever is called queue_jobs.something must be there. (The workers of the engine's own are in no catalog.)
	my %exists = (command => 1, heal => 1, fill => 1, map { $_ => 1 } split /\n/, $node->safe_psql($db, <<'SQL'));
SELECT proname FROM pg_proc WHERE pronamespace = 'queue_jobs'::regnamespace
UNION SELECT relname FROM pg_class WHERE relnamespace IN ('queue_jobs'::regnamespace, 'queue_jobs_internal'::regnamespace)
UNION SELECT split_part(name, '.', 2) FROM pg_settings WHERE name LIKE 'queue_jobs.%'
SQL
	for my $file (@documents)
	{
		my $text = PostgreSQL::Test::Utils::slurp_file($file);
		my %unknown = map { $_ => 1 } grep { !$exists{$_} } $text =~ /\bqueue_jobs(?:_internal)?\.(\w+)/g;
		my $name = $file =~ s/^\Q$root\E\///r;
		is(join(' ', sort keys %unknown), '', "what $name names is there");

		my $folder = $file =~ s/[^\/]*$//r;
		my @broken = grep { !/^https?:/ && !-e $folder . s/#.*//r } $text =~ /\]\(([^)#][^)]*)\)/g;
		is("@broken", '', "the links of $name lead somewhere");
		my @headless = grep {
			my ($path, $heading) = /^([^#]*)#(.*)$/;
			my $to = ($path // '') eq '' ? $file : $folder . $path;
			defined $heading && !/^https?:/ && $to =~ /\.md$/ && !anchors($to)->{$heading}
		} $text =~ /\]\(([^)\s]+)\)/g;
		is("@headless", '', "... to a heading that is there");
	}

	# No package of ours is on npm, PyPI or RubyGems: what these call queue_jobs is another's.
	my @foreign = map { my $file = $_; map { "$file: $_" } PostgreSQL::Test::Utils::slurp_file($file) =~ /\b((?:npm (?:install|i)|npx --yes|pip install|gem install) queue_jobs(?=[\s`]).*)/g } @documents,
	  glob("$root/clients/*/README.md $root/docs/how-to/*.md");
	is(join("\n", @foreign), '', 'no page has its reader install a package that is not ours');
}

# ---- all of it ----

my @blocks = map { blocks($_) } @documents;
$node = new_node('readme', extension => 0, init => [ allows_streaming => 1 ], conf => join('', map { $_->{text} } grep { $_->{language} eq 'ini' } @blocks));
$node->safe_psql('postgres', "CREATE DATABASE $db");
foreach my $block (@blocks)
{
  SKIP:
	{
		skip "the library was built without OpenSSL's headers", 1 if $block->{file} eq 'docs/how-to/secrets.md' && !can_encrypt($node, db => $db);
		skip "the server has no $block->{needs}", 1
		  if $block->{needs} && $node->safe_psql($db, "SELECT count(*) FROM pg_available_extensions WHERE name = '$block->{needs}'") == 0;
		test_block($block);
	}
}
test_tables();
done_testing();
