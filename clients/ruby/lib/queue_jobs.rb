# The Ruby client of queue_jobs, the job queue inside PostgreSQL.
module QueueJobs
end

require "pg"
require "queue_jobs/version"
require "queue_jobs/log"
require "queue_jobs/client"
require "queue_jobs/job"
require "queue_jobs/worker"

# Rails finds the adapter by config.active_job.queue_adapter = :queue_jobs.
ActiveSupport.on_load(:active_job) { require "queue_jobs/active_job" } if defined?(ActiveSupport) && ActiveSupport.respond_to?(:on_load)
