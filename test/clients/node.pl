# The scenarios of test/clients/scenarios.json with the Node client.
use strict;
use warnings;

use QueueJobs::Clients;

run_scenarios('node');
