require "active_support"

# The adapter is there when ActiveJob is, for config.active_job.queue_adapter = :queue_jobs.
ActiveSupport.on_load(:active_job) { require "queue_jobs/active_job" }
