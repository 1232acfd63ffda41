# The columns of rows that C writes and reads by number: each enumeration in src names those of its table or view, in their order. A column
# that is added in one place only fails here, by name.
use strict;
use warnings;

use File::Basename qw(dirname);
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $src = dirname(__FILE__) . '/../../src';

# Names of the enumeration that starts with the constant, in lower case and without its prefix, up to the one that counts them.
sub enumerated
{
	my ($file, $first) = @_;
	my ($prefix) = $first =~ /^([A-Z]+_)/;
	my ($body) = slurp_file("$src/$file") =~ /\{\s*(\Q$first\E\b.*?)\}/s
	  or die "no $first in $file";

	$body =~ s{/\*.*?\*/}{}gs;
	return [ map { lc } grep { defined } map { /^\s*\Q$prefix\E([A-Z_]+)\s*(?:=[^,]*)?$/ ? $1 : undef } grep { !/ATTRIBUTES|COLUMNS/ } split /,/, $body ];
}

my $node = new_node('columns');

foreach (
	[ 'live_job', 'table/live_row.h', 'LIVE_ID' ],
	[ 'finished_job', 'table/history.c', 'ATT_SLICE' ],
	[ 'job', 'table/job_row.c', 'COL_ID' ],
	[ 'token', 'api/run_once.c', 'ATT_OWNER' ],
	[ 'job_signal', 'rules/job_signal.c', 'ATT_JOB' ])
{
	my ($relation, $file, $first) = @$_;
	my @columns = split / /, $node->safe_psql('postgres', "SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = 'queue_jobs.$relation'::regclass AND attnum > 0 AND NOT attisdropped");

	is_deeply(enumerated($file, $first), \@columns, "$file has the columns of $relation");
}

# Each option of a worker is read by name: its column, and its type. What is no option, define_worker() writes itself.
my %of_worker = slurp_file("$src/catalog/worker.c") =~ /^\s*\[WORKER_[A-Z_]+\] = \{"(\w+)", ([A-Z0-9]+OID)\}/mg;
my %columns = map { split /\|/ } split /\n/, $node->safe_psql('postgres', q{SELECT attname, upper(CASE WHEN typname = '_text' THEN 'textarray' ELSE typname END) || 'OID'
	FROM pg_attribute JOIN pg_type t ON t.oid = atttypid WHERE attrelid = 'queue_jobs.defined_worker'::regclass AND attnum > 0 AND NOT attisdropped});
is_deeply(\%of_worker, \%columns, 'catalog/worker.c has the columns of defined_worker, with their types');

# Options are also parameters of define_worker(), which C knows by number.
my @parameters = split / /, $node->safe_psql('postgres', q{SELECT array_to_string(proargnames, ' ') FROM pg_proc WHERE proname = 'define_worker' AND pronamespace = 'queue_jobs'::regnamespace});
is_deeply(enumerated('api/define_worker.c', 'ARG_NAME'), \@parameters, 'api/define_worker.c has the parameters of define_worker()');

$node->stop;
done_testing();
