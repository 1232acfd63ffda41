# What is in monitoring/, without a server: promtool takes the configuration and the rules, the rules do what
# their unit tests say (alerts_test.yml), each alert has its place in docs/how-to/monitor.md, CloudNativePG's
# queries are postgres_exporter's.
use strict;
use warnings;

use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;
use QueueJobs::Test;
use Test::More;

my $root = $ENV{TESTDIR} // '.';
my $folder = "$root/monitoring";
my $python = python_with('yaml') or die "no Python with yaml (Debian: python3-yaml)\n";
$ENV{PATH} = join ':', $ENV{MONITORING_PROGRAMS} || die("MONITORING_PROGRAMS is not set: make test does\n"), $ENV{PATH};

# The documents of a YAML file.
sub yaml
{
	my ($text) = @_;
	my $program = 'import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)';
	my ($json, $error);

	IPC::Run::run([ $python, '-c', $program ], '<', \$text, '>', \$json, '2>', \$error) or die $error;
	return @{ decode_json($json) };
}

sub promtool
{
	my ($name, @arguments) = @_;
	my $output;

	ok(IPC::Run::run([ 'promtool', @arguments ], '>', \$output, '2>&1'), $name) or diag $output;
	return;
}

promtool('promtool takes the configuration', 'check', 'config', "$folder/prometheus.yml");
promtool('… and the rules', 'check', 'rules', "$folder/alerts.yml");
promtool('the rules do what their tests say', 'test', 'rules', "$folder/test/alerts_test.yml");

# ---- alerts ----

# GitHub's name for a heading.
sub anchor
{
	my ($heading) = @_;

	return lc($heading =~ s/[^\w -]//gr) =~ tr/ /-/r;
}

my ($rules) = yaml(slurp_file("$folder/alerts.yml"));
my @alerts = map { @{ $_->{rules} } } @{ $rules->{groups} };
my $tested = slurp_file("$folder/test/alerts_test.yml");
my $manual = slurp_file("$root/docs/how-to/monitor.md");
my %section = map { anchor($_) => 1 } $manual =~ /^#+ (.*)$/mg;
for my $alert (@alerts)
{
	my $name = $alert->{alert};
	my ($anchor) = $alert->{annotations}{runbook_url} =~ /^docs\/how-to\/monitor\.md#(.*)$/;
	ok($section{ $anchor // '' }, "$name: its runbook is there");
	like($manual, qr/`$name`/, '… and names it');
	like($tested, qr/alertname: $name\b/, '… a unit test has it');
	is(join(' ', grep { !$alert->{annotations}{$_} } qw(summary description)), '', '… it says what is wrong');
	like($alert->{labels}{severity}, qr/^(?:warning|critical)$/, '… and how bad it is');
}

# ---- CloudNativePG ----

my ($config_map, $pod_monitor) = yaml(slurp_file("$folder/cloudnative-pg.yaml"));
my ($custom) = yaml($config_map->{data}{queries});
my ($queries) = yaml(slurp_file("$folder/postgres_exporter.yaml"));
ok(delete $custom->{queue_jobs}{primary}, "CloudNativePG's queries run on the primary");
is_deeply($custom, $queries, "… and are postgres_exporter's");

my ($prometheus) = yaml(slurp_file("$folder/prometheus.yml"));
my %job = map { $_->{job_name} => $_ } @{ $prometheus->{scrape_configs} };
my %camel = (source_labels => 'sourceLabels', target_label => 'targetLabel');
my @relabelings = map { my $rule = $_; +{ map { ($camel{$_} // $_) => $rule->{$_} } keys %$rule } } @{ $job{postgres_exporter}{metric_relabel_configs} };
is_deeply($pod_monitor->{spec}{podMetricsEndpoints}[0]{metricRelabelings}, \@relabelings, 'its PodMonitor names samples as prometheus.yml does');

# ---- Grafana ----

my $dashboard = decode_json(slurp_file("$folder/grafana.json"));
my @panels = @{ $dashboard->{panels} };
my %ids = map { $_->{id} => 1 } @panels;
is(scalar keys %ids, scalar @panels, "the dashboard's panels have numbers of their own");
my %variable = map { $_->{name} => 1 } @{ $dashboard->{templating}{list} };
my %used = map { $_ => 1 } map { map { $_->{expr} =~ /\$(\w+)/g } @{ $_->{targets} // [] } } @panels;
is(join(' ', grep { !$variable{$_} && !/^__/ } sort keys %used), '', '… and use the variables that there are');
my %taken;
for my $at (map { $_->{gridPos} } @panels)
{
	for my $x ($at->{x} .. $at->{x} + $at->{w} - 1)
	{
		$taken{"$x $_"}++ for $at->{y} .. $at->{y} + $at->{h} - 1;
	}
}
is(scalar(grep { $_ > 1 } values %taken), 0, '… none lies upon another');

done_testing();
