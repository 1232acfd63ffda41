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
      raise OptionParser::ParseError, "one FILE, or --rails" unless rest.size == (@options[:rails] ? 0 : 1)

      @file = rest.first
    rescue OptionParser::ParseError => e
      misused(e)
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

    def misused(error)
      warn "queue_jobs: #{error.message}\n\n#{parser.help}"
      exit 2
    end

    def parser
      @parser ||= OptionParser.new("usage: queue_jobs [options] FILE\n       queue_jobs [options] --rails") do |parser|
        parser.on("--rails", "the jobs of ActiveJob, in the application of this folder") { @options[:rails] = true }
        parser.on("--worker CONSTANT", "if the file makes several workers") { |name| @options[:worker] = name }
        add_workers_options(parser)
        parser.separator "\nWhat is not given is as the Worker has it. QUEUE_JOBS_LOG=debug, info (default), warn or error: the least level that is logged."
      end
    end

    def add_workers_options(parser)
      parser.on("--queues LIST", "queues to claim from: names, separated by commas or spaces, and selectors, separated by",
                "spaces, such as 'urgency=high&tags=mail,index' (wherever jobs of the handlers wait)") { |list| @options[:queues] = queue_list(list) }
      parser.on("--mode MODE", %w[transaction lease], "transaction: claim, handler and completion are one transaction, exactly once;",
                "lease: at least once (transaction)") { |mode| @options[:mode] = mode }
      parser.on("--concurrency N", Integer, "handlers that run at once (1)") { |n| @options[:concurrency] = n }
      parser.on("--batch N", Integer, "lease mode: jobs in hand at most, running or not begun (as many as run at once)") { |n| @options[:batch] = n }
      parser.on("--lease SECONDS", Float, "lease mode: how long a claim holds without a heartbeat (300)") { |seconds| @options[:lease] = seconds }
      parser.on("--grace SECONDS", Float, "from SIGTERM until what still runs is given back (25)") { |seconds| @options[:grace] = seconds }
      parser.on("--name NAME", "what the claimant's name begins with (the host's name)") { |name| @options[:name] = name }
    end

    # Names, separated by commas or spaces, and selectors, in which commas separate values.
    def queue_list(text)
      text.split.flat_map { |part| part.include?("=") ? [part] : part.split(",") }.reject(&:empty?)
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
    rescue ArgumentError => e
      misused(e)
    end
  end
end
