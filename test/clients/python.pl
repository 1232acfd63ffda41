# The scenarios of test/clients/scenarios.json with the Python client.
use strict;
use warnings;

use QueueJobs::Clients;

run_scenarios('python');
