module QueueJobs
  VERSION = "0.2.0"
end
