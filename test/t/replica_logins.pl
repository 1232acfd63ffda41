# How executors and the scheduler log in to a replica: by password file, certificate and peer, each as the job's role; never
# by the operator's password, which no role gets to see.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

plan skip_all => 'no openssl' if system('openssl version >/dev/null 2>&1') != 0;

my $secret = 'hush, hush';
my $dir = PostgreSQL::Test::Utils::tempdir();
my $os_user = getpwuid($<);

# ---- a certificate authority, and another that no server trusts; the replica's certificate, and the primary's ----

sub openssl
{
	my $command = "openssl @_ 2>>'$dir/openssl.log'";
	system($command) == 0 or die "failed: $command\n" . slurp_file("$dir/openssl.log");
	return;
}
for my $ca ('ca', 'other')
{
	openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=$ca -keyout $dir/$ca.key -out $dir/$ca.crt");
}
sub certificate
{
	my ($name, $subject, $extension) = @_;
	append_to_file("$dir/$name.ext", $extension);
	openssl("req -newkey rsa:2048 -nodes -subj /CN=$subject -keyout $dir/$name.key -out $dir/$name.csr");
	openssl("x509 -req -in $dir/$name.csr -CA $dir/ca.crt -CAkey $dir/ca.key -CAcreateserial -days 2 -extfile $dir/$name.ext -out $dir/$name.crt");
	chmod 0600, "$dir/$name.key" or die $!;
	return;
}
certificate('server', 'replica.test', 'subjectAltName = DNS:replica.test');
certificate('client', 'primary.test', 'extendedKeyUsage = clientAuth');

# ---- a primary and a replica ----

my $primary = new_node('primary', init => [ allows_streaming => 1 ], conf => <<'CONF');
queue_jobs.replica_timeout = 20s
log_statement = none
CONF
my @roles = qw(by_cert by_password by_peer stranger);
my $all = join ', ', @roles;
$primary->safe_psql('postgres', <<"SQL");
SET password_encryption = 'scram-sha-256';
CREATE ROLE monitor LOGIN PASSWORD '$secret';
CREATE ROLE by_cert LOGIN;
CREATE ROLE by_password LOGIN PASSWORD 'its own';
CREATE ROLE by_peer LOGIN;
CREATE ROLE stranger LOGIN PASSWORD '$secret';		-- the same as the operator's
CREATE ROLE reader LOGIN IN ROLE pg_monitor;
GRANT USAGE ON SCHEMA queue_jobs TO monitor, reader, $all;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA queue_jobs TO $all;
GRANT SELECT ON ALL TABLES IN SCHEMA queue_jobs TO $all;
REVOKE ALL ON queue_jobs.defined_replica FROM $all;
GRANT SELECT ON queue_jobs.replica TO reader;
CREATE FUNCTION look(args jsonb) RETURNS jsonb LANGUAGE sql STABLE AS \$\$
	SELECT jsonb_build_object('standby', pg_is_in_recovery(), 'role', session_user, 'dn', (SELECT client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()));
\$\$;
CREATE FUNCTION tell(args jsonb, read jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT read';
SELECT queue_jobs.define_worker('sticky', 'public.tell', read_handler => 'public.look', data_consistency => 'sticky');
SQL
$primary->backup('backup');

my $replica = PostgreSQL::Test::Cluster->new('replica');
$replica->init_from_backup($primary, 'backup', has_streaming => 1);
$replica->append_conf('postgresql.conf', <<"CONF");
listen_addresses = '127.0.0.1'
ssl = on
ssl_ca_file = '$dir/ca.crt'
ssl_cert_file = '$dir/server.crt'
ssl_key_file = '$dir/server.key'
log_connections = on
log_statement = all
CONF
unlink $replica->data_dir . '/pg_hba.conf';
append_to_file($replica->data_dir . '/pg_hba.conf', <<"HBA");
local all "$os_user" trust
local all by_peer peer map=jobs
hostssl all monitor,by_cert 127.0.0.1/32 cert map=jobs
host all all 127.0.0.1/32 scram-sha-256
HBA
append_to_file($replica->data_dir . '/pg_ident.conf', <<"IDENT");
jobs "$os_user" by_peer
jobs primary.test by_cert
jobs primary.test monitor
IDENT
$replica->start;

# Adds the replica, as the only one, and has each role read from it, when it surely has caught up; returns where each did.
sub reads
{
	my ($name, $conninfo, $state) = @_;
	$primary->safe_psql('postgres', "SELECT queue_jobs.drop_replica(name) FROM queue_jobs.replica;
		SELECT queue_jobs.add_replica('$name', \$c\$$conninfo port=" . $replica->port . "\$c\$)");
	wait_until($primary, "SELECT state = '$state' FROM queue_jobs.replica") if defined $state;
	$primary->safe_psql('postgres', q{SELECT queue_jobs.pause('sticky')});
	my %jobs = map { $_ => $primary->safe_psql('postgres', q{SELECT queue_jobs.enqueue('sticky')}, extra_params => [ '-U', $_ ]) } @roles;
	$primary->wait_for_catchup($replica, 'replay');
	$primary->safe_psql('postgres', q{SELECT queue_jobs.resume('sticky')});
	my %reads;
	for my $role (@roles)
	{
		wait_for_job($primary, $jobs{$role}, 'completed');
		my ($read_from, $result) = split /\|/, $primary->safe_psql('postgres',
			"SELECT read_from, concat_ws(' ', CASE WHEN (result->'standby')::boolean THEN 'replica' ELSE 'primary' END, 'as', result->>'role', result->>'dn')
			   FROM queue_jobs.job WHERE id = $jobs{$role}");
		is($read_from, $result =~ /^replica/ ? $name : 'primary', "$name, $role: it was read where it is said to have been");
		$reads{$role} = $result;
	}
	return \%reads;
}
my $tcp = 'host=replica.test hostaddr=127.0.0.1';
my $ssl = "$tcp sslmode=verify-full sslrootcert=$dir/ca.crt";
my $client = "sslcert=$dir/client.crt sslkey=$dir/client.key";
my %nobody = map { $_ => "primary as $_" } @roles;

# ---- by certificate ----

is_deeply(reads('certificate', "$ssl $client user=monitor password='$secret'", 'ready'), { %nobody, by_cert => 'replica as by_cert /CN=primary.test' },
	'by certificate: the role that the map lets in, and no other');
like(slurp_file($replica->logfile), qr/method=cert.*user=by_cert/s, '… and that was how');
unlike(slurp_file($replica->logfile), qr/user=stranger.*authorized/, "the operator's password does not open the door for one who has the same");
my $error = $primary->safe_psql('postgres', q{SELECT last_error FROM queue_jobs.replica});
like($error, qr/password|certificate/, "what went wrong is shown: $error");

is_deeply(reads('not trusted', "$tcp sslmode=verify-full sslrootcert=$dir/other.crt $client user=monitor", 'unreachable'), \%nobody,
	'a replica whose certificate is of another authority: no role');
like($primary->safe_psql('postgres', q{SELECT last_error FROM queue_jobs.replica}), qr/certificate verify failed/, '… is shown as such');

# ---- by password ----

append_to_file("$dir/passwords", "replica.test:*:*:by_password:its own\nreplica.test:*:*:monitor:$secret\n");
chmod 0600, "$dir/passwords" or die $!;
my $hba = slurp_file($replica->data_dir . '/pg_hba.conf');
$hba =~ s/^hostssl.*\n//m;
unlink $replica->data_dir . '/pg_hba.conf';
append_to_file($replica->data_dir . '/pg_hba.conf', $hba);
$replica->reload;
is_deeply(reads('password', "$ssl user=monitor password='$secret'", 'ready'), \%nobody, 'the password in the string is for the operator: no role reads by it');
is_deeply(reads('passfile', "$tcp user=monitor passfile=$dir/passwords", 'ready'), { %nobody, by_password => 'replica as by_password' },
	'by password file: the role that has a line in it; and the operator, without a password in the string');
like(slurp_file($replica->logfile), qr/method=scram-sha-256.*user=by_password/s, '… by SCRAM');

# ---- peer ----

is_deeply(reads('peer', 'host=' . $replica->host), { %nobody, by_peer => 'replica as by_peer' }, 'by peer: the role that the map lets in');
like(slurp_file($replica->logfile), qr/method=peer.*user=by_peer/s, '… and that was how');

# ---- the secret is one ----

sub outcome_of
{
	my ($sql, @params) = @_;
	my ($status, $out, $err) = $primary->psql('postgres', "\\set VERBOSITY verbose\n$sql", extra_params => \@params);
	return "$out$err";
}
my $log = -s $primary->logfile;
my $session = in_background($primary);
$session->query("SELECT queue_jobs.add_replica('string', \$\$host=replica.test hostaddr=127.0.0.1 user=monitor password='$secret' sslpassword='$secret'\$\$)");
$session->query("SELECT queue_jobs.add_replica('uri', 'postgresql://monitor:hush%2c%20hush\@127.0.0.1/?application_name=x')");
is($session->error, '', 'a password may be given in a URI');
is($primary->safe_psql('postgres', q{SELECT count(*) FROM queue_jobs.defined_replica WHERE conninfo ~ ('hu' || 'sh')}), '2', 'two passwords are kept');
for my $role ('by_password', 'reader')
{
	unlike(outcome_of('SELECT * FROM queue_jobs.replica; SELECT * FROM pg_stat_activity', '-U', $role), qr/hush/, "$role sees no password in replica and pg_stat_activity");
	like(outcome_of('SELECT * FROM queue_jobs.defined_replica', '-U', $role), qr/42501/, '… and may not read the table');
}
$session->quit;
unlike($primary->safe_psql('postgres', q{SELECT string_agg(conninfo, ' ') FROM queue_jobs.replica}), qr/hush|password/, 'nor is it shown to a superuser');
for my $conninfo ("host=x password=one $secret", "password='$secret' hosts=x", "password='$secret' service=x", "postgresql://monitor:$secret\@[::1/")
{
	like(outcome_of("SELECT queue_jobs.add_replica('x', \$\$$conninfo\$\$)"), qr/22023/, 'a string that is wrong is refused');
}
like(outcome_of("SELECT queue_jobs.add_replica('x', \$\$password='$secret'\$\$)", '-U', 'by_password'), qr/42501/, 'and one who may not');
like(outcome_of("SELECT queue_jobs.add_replica('primary', \$\$password='$secret'\$\$)"), qr/22023/, 'and a name that is taken');
wait_until($primary, q{SELECT count(*) = 3 FROM queue_jobs.replica WHERE last_error IS NOT NULL OR state = 'ready'});
unlike($primary->safe_psql('postgres', q{SELECT string_agg(last_error, ' ') FROM queue_jobs.replica}), qr/hush/, 'no error tells it');
unlike(slurp_file($primary->logfile, $log), qr/hush/, 'nor does the log, though statements failed');
unlike(slurp_file($replica->logfile), qr/hush|its own/, "nor the replica's, though all is logged there");

$replica->stop;
$primary->stop;
done_testing();
