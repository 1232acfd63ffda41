require "optparse"
require "queue_jobs"

module QueueJobs
  # queue_jobs FILE: runs the Worker that a file of Ruby makes, until SIGTERM.
  class Command
    def self.run(arguments)
      new(arguments).run
    end

    def initialize(arguments)
      @options = {}
      rest = parser.parse(arguments)
      abort parser.help unless rest.size == (@options[:rails] ? 0 : 1)
      @file = rest.first
    end

    def run
      worker = @options[:rails] ? rails_worker : find_worker
      apply_options(worker)
      QueueJobs.log_to_stderr
      worker.run
    rescue PG::Error => e
      abort "queue_jobs: #{Outcome.describe(e)}"
    end

    private

    def parser
      @parser ||= OptionParser.new("usage: queue_jobs [options] FILE\n       queue_jobs [options] --rails") do |parser|
        parser.on("--rails", "the jobs of ActiveJob, in the application of this folder") { @options[:rails] = true }
        parser.on("--worker CONSTANT", "if the file makes several workers") { |name| @options[:worker] = name }
        parser.on("--queues NAMES", "names or selectors, separated by spaces or given as a|b; default: the workers that have handlers") { |names| @options[:queues] = names.split }
        parser.on("--mode MODE", %w[transaction lease]) { |mode| @options[:mode] = mode }
        parser.on("--concurrency N", Integer) { |n| @options[:concurrency] = n }
        parser.on("--batch N", Integer, "lease mode: jobs in hand at most") { |n| @options[:batch] = n }
        parser.on("--lease SECONDS", Float) { |seconds| @options[:lease] = seconds }
        parser.on("--grace SECONDS", Float, "from SIGTERM until what still runs is given back") { |seconds| @options[:grace] = seconds }
        parser.on("--name NAME", "what the claimant's name begins with") { |name| @options[:name] = name }
      end
    end

    # The only Worker among the constants that the file has defined, or the one of that name.
    def find_worker
      before = Object.constants
      require File.expand_path(@file)
      names = @options[:worker] ? [@options[:worker]] : Object.constants - before
      workers = names.map { |name| Object.const_get(name) }.grep(Worker).uniq
      abort "#{@file} has #{workers.size} workers among its constants: say --worker CONSTANT" unless workers.size == 1
      workers.first
    end

    def rails_worker
      require "queue_jobs/rails"
      require File.expand_path("config/environment")
      require "queue_jobs/active_job"
      ::Rails.application.eager_load! if defined?(::Rails.application)
      QueueJobs.active_job_worker(mode: @options[:mode] || :transaction)
    end

    def apply_options(worker)
      worker.queues = @options[:queues] if @options[:queues]
      %i[mode lease grace name].each { |name| worker.public_send(:"#{name}=", @options[name]) if @options[name] }
      concurrency = @options[:concurrency] || worker.concurrency
      batch = @options[:batch] || (@options[:concurrency] ? concurrency : worker.batch)
      worker.resize(concurrency, [batch, concurrency].max)
    end
  end
end
