# CREATE EXTENSION makes the ready-made roles, or finds those of another database; it takes none over that a role without
# superuser's rights has members in.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $node = new_node('roles', extension => 0);
my $version = $node->safe_psql('postgres', 'SHOW server_version_num');
my $superuser = $node->safe_psql('postgres', 'SELECT rolname FROM pg_roles WHERE oid = 10');
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE creator LOGIN CREATEROLE;
CREATE ROLE member LOGIN;
CREATE ROLE app LOGIN;
CREATE DATABASE first;
CREATE DATABASE second;
SQL

# CREATE EXTENSION in that database; returns the error with its DETAIL and HINT.
sub create_extension
{
	my ($db) = @_;
	my ($status, $out, $err) = $node->psql($db, 'CREATE EXTENSION queue_jobs');

	return $err;
}

sub drop_roles
{
	$node->safe_psql('postgres', 'DROP ROLE IF EXISTS queue_jobs_enqueue, queue_jobs_claim, queue_jobs_define, queue_jobs_operate, queue_jobs_read');
	return;
}

# Roles that a role with CREATEROLE has made beforehand, to be in them when they get rights.
$node->safe_psql('postgres', 'SET ROLE creator; CREATE ROLE queue_jobs_enqueue; GRANT queue_jobs_enqueue TO member');
my $error = create_extension('first');
like($error, qr/role queue_jobs_enqueue has members that no superuser has let in/, 'a role with members that a CREATEROLE has made is refused');
like($error, qr/DETAIL:.*\bmember, granted by creator/, '… with the member and the grantor');
like($error, qr/DETAIL:.*\bcreator, with ADMIN OPTION/, '… and the one who could let others in') if $version >= 160000;
like($error, qr/HINT:.*REVOKE/, '… and a way out');
$node->safe_psql('postgres', 'SET ROLE creator; REVOKE queue_jobs_enqueue FROM member');
if ($version >= 160000)
{
	like(create_extension('first'), qr/DETAIL:.*\bcreator, with ADMIN OPTION/, 'who has made a role can let others in: that is refused by itself');
}
else
{
	$node->safe_psql('postgres', 'GRANT queue_jobs_enqueue TO creator WITH ADMIN OPTION');
	like(create_extension('first'), qr/DETAIL:.*\bcreator, with ADMIN OPTION/, 'who can let others in is refused by itself');
}
drop_roles();

$node->safe_psql('postgres', 'SET ROLE creator; CREATE ROLE queue_jobs_read ROLE member ADMIN app');
like(create_extension('first'), qr/role queue_jobs_read has members.*DETAIL:.*app, granted by creator/s, 'members from the beginning');
drop_roles();

# What superusers do is no hole.
$node->safe_psql('postgres', 'CREATE ROLE queue_jobs_claim ROLE app');
is(create_extension('first'), '', 'a role that a superuser has made, with its members, is taken');
$node->safe_psql('postgres', "GRANT queue_jobs_enqueue, queue_jobs_read TO app; GRANT queue_jobs_operate TO $superuser WITH ADMIN OPTION");
is(create_extension('second'), '', 'so are those of another database, with the members that a superuser has let in');
is($node->safe_psql('second', q{SET ROLE app; SELECT count(*) FROM queue_jobs.job}), '0', 'and they have their rights there');

# Also after a member, or a superuser who has let it in, was dropped or has changed its name.
$node->safe_psql('postgres', <<'SQL');
CREATE ROLE other_superuser SUPERUSER;
SET SESSION AUTHORIZATION other_superuser;
GRANT queue_jobs_define TO app;
RESET SESSION AUTHORIZATION;
ALTER ROLE app RENAME TO application;
CREATE DATABASE third;
SQL
is(create_extension('third'), '', 'a grant by another superuser');

$node->stop;
done_testing();
