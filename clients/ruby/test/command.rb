# A file with a Worker, for the command queue_jobs.
require "queue_jobs"

COMMAND_WORKER = QueueJobs::Worker.new
COMMAND_WORKER.handle(ENV.fetch("WORKER"), &:attempt)
