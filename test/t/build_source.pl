# The floors of src (src/README.md): nothing includes upward, no modules include each other in a circle, no line is too long, all is ASCII, and no static function has another's name.
# The matrix runs it once.
use strict;
use warnings;

use File::Basename qw(dirname);
use Test::More;

my $check = dirname(__FILE__) . '/../lint/floors.pl';
my $found = qx("$^X" "$check" 2>&1);
is($found, '', 'each file includes only what stands below it, has no line that is too long, and is ASCII');
is($?, 0, 'and the check has come to its end');
$check = dirname(__FILE__) . '/../lint/names.pl';
$found = qx("$^X" "$check" 2>&1);
is($found, '', 'what READMEs and headers name is there');
is($?, 0, 'and this check has come to its end, too');
done_testing();
