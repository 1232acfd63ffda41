require_relative "lib/queue_jobs/version"

Gem::Specification.new do |spec|
  spec.name = "queue_jobs"
  spec.version = QueueJobs::VERSION
  spec.summary = "Enqueues and works off the jobs of queue_jobs, the job queue inside PostgreSQL"
  spec.author = "The developers of queue_jobs"
  spec.license = "PostgreSQL"
  spec.required_ruby_version = ">= 3.1"
  spec.files = Dir.glob("{lib,exe}/**/*", base: __dir__).select { |file| File.file?(File.join(__dir__, file)) } + ["README.md"]
  spec.bindir = "exe"
  spec.executables = ["queue_jobs"]
  spec.add_dependency "pg", ">= 1.4"
end
