# What C knows of columns by number or by name is what the tables have. Their numbers are made from the install script at build
# (src/base/attribute_numbers.awk); the lists job_columns.h and worker_columns.h say what is written and read. A column that is added in one place only
# fails here, by name.
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

# As the build makes them.
my $numbers = qx(awk -f '$src/base/attribute_numbers.awk' '$src/sql/20_tables.sql' @{[ map { "'$_'" } glob "$src/sql/21_*.sql" ]} '$src/sql/40_functions.sql');
my %number = $numbers =~ /^\t(?:Anum|Arg)_(\w+) = (\d+),$/mg;

sub columns_of
{
	return split / /, $node->safe_psql('postgres', "SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = 'queue_jobs.$_[0]'::regclass AND attnum > 0 AND NOT attisdropped");
}

foreach my $table (qw(live_job finished_job defined_worker token job_signal))
{
	my @columns = columns_of($table);

	is_deeply({ map { $_ => $number{"${table}_$_"} } @columns }, { map { $columns[ $_ - 1 ] => $_ } 1 .. @columns }, "attribute_numbers.h has the columns of $table");
	like($numbers, qr/^\tNatts_$table = ${\scalar @columns}$/m, 'and how many they are');
}

my @parameters = split / /, $node->safe_psql('postgres', q{SELECT array_to_string(proargnames, ' ') FROM pg_proc WHERE proname = 'define_worker' AND pronamespace = 'queue_jobs'::regnamespace});
is_deeply([ map { $number{"define_worker_$_"} } @parameters ], [ 0 .. $#parameters ], 'and the parameters of define_worker()');
like($numbers, qr/^\tNargs_define_worker = ${\scalar @parameters}$/m, 'and how many they are');

# Each column of a job is written and read by the list, or by history.c itself.
my %kind = map { /^([A-Z]+)_COLUMN\((\w+), \w+\)/ ? ($2 => $1) : () } split /\n/, slurp_file("$src/base/job_columns.h");
my ($form_row) = slurp_file("$src/table/history.c") =~ /^form_row\((.*?)^\}/ms;
# (Large args of the list's are written again as they came.)
my %by_hand = map { $_ => 1 } $form_row =~ /put_(?!compressed_args)\w+\(&row, Anum_finished_job_(\w+),/g;
is_deeply([ sort grep { $kind{$_} =~ /^(JOB|LIVE)$/ } keys %kind ], [ sort(columns_of('live_job')) ], 'job_columns.h has the columns of live_job');
is_deeply([ sort +(grep { $kind{$_} =~ /^(JOB|FINISHED)$/ } keys %kind), keys %by_hand ], [ sort(columns_of('finished_job')) ],
	'and, with those that history.c writes itself, the columns of finished_job');
is_deeply(enumerated('table/job_row.c', 'COL_ID'), [ columns_of('job') ], 'table/job_row.c has the columns of the view job');

# Of a worker likewise, with their types.
my %sql_type = slurp_file("$src/catalog/worker.c") =~ /^#define OID_(\w+) ([A-Z0-9]+)OID$/mg;
my %of_worker = map { /^(?:WORKER|ROW)_(?:COLUMN|OPTION)\((\w+), (\w+)\)/ ? ($1 => $sql_type{$2}) : () } split /\n/, slurp_file("$src/catalog/worker_columns.h");
my %columns = map { split /\|/ } split /\n/, $node->safe_psql('postgres', q{SELECT attname, upper(CASE WHEN typname = '_text' THEN 'textarray' ELSE typname END)
	FROM pg_attribute JOIN pg_type t ON t.oid = atttypid WHERE attrelid = 'queue_jobs.defined_worker'::regclass AND attnum > 0 AND NOT attisdropped});
is_deeply(\%of_worker, \%columns, 'worker_columns.h has the columns of defined_worker, with their types');

# The view job_alive and table/live_row.c bound a lease alike, which a row that SQL has written may have of any length.
my ($days) = slurp_file("$src/base/arguments.h") =~ /^#define LONGEST_STORED_DURATION \((\d+) \* USECS_PER_DAY\)$/m;
like($node->safe_psql('postgres', q{SELECT pg_get_viewdef('queue_jobs_internal.live_job_now')}), qr/LEAST\(j\.lease, '?@{[ $days * 86400 * 1000000 ]}\b/,
	'job_alive bounds a lease by LONGEST_STORED_DURATION');

$node->stop;
done_testing();
