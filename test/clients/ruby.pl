# The scenarios of test/clients/scenarios.json with the Ruby client.
use strict;
use warnings;

use QueueJobs::Clients;

run_scenarios('ruby');
