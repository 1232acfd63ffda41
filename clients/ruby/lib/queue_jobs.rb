# The Ruby client of queue_jobs, the job queue inside PostgreSQL.
module QueueJobs
end

require "pg"
require "queue_jobs/version"
require "queue_jobs/log"
require "queue_jobs/client"
require "queue_jobs/job"
require "queue_jobs/worker"

require "queue_jobs/rails" if defined?(ActiveSupport)
