require "active_job"
require "queue_jobs/record_worker"

module QueueJobs
  # Each job of ActiveJob is one of this worker, whose args are what ActiveJob serializes.
  ACTIVE_JOB_WORKER = "active_job"

  # Runs the jobs that the adapter has enqueued.
  def self.active_job_worker(**options)
    RecordWorker.new(**options).tap { |worker| worker.handle(ACTIVE_JOB_WORKER, ActiveJobHandler) }
  end

  # Options of queue_jobs.enqueue() beside ActiveJob's own: for a class by queue_with_options, for one job by
  # set(). dedup_key may be a Proc, which gets the job's arguments.
  module ActiveJobOptions
    NAMES = (Client::OPTIONS.fetch(:enqueue) - %i[run_at delay priority queue context]).freeze

    def self.included(base)
      base.class_attribute :queue_jobs_options, instance_accessor: false, default: {}
      base.extend(ClassMethods)
    end

    module ClassMethods
      # Subclasses have them, too.
      def queue_with_options(**options)
        Client.refuse_unknown("queue_with_options", options.keys - NAMES, NAMES)
        self.queue_jobs_options = { **queue_jobs_options, **options }
      end
    end

    def set(options = {})
      take_queue_jobs_options(options)
      super
    end

    # ActiveJob 6.1 gives the options of set() to enqueue.
    def enqueue(options = {})
      take_queue_jobs_options(options)
      super
    end

    # A retry of the job that runs is no duplicate of it.
    def queue_jobs_options
      given = { **self.class.queue_jobs_options, **(@queue_jobs_options || {}) }
      given = given.except(:dedup_key, :if_waiting, :max_delay) if QueueJobs.current_job&.args&.[]("job_id") == job_id
      key = given[:dedup_key]
      key.respond_to?(:call) ? { **given, dedup_key: key.call(*arguments) } : given
    end

    private

    def take_queue_jobs_options(options)
      @queue_jobs_options = { **(@queue_jobs_options || {}), **options.slice(*NAMES) }
    end
  end

  module ActiveJobHandler
    class << self
      # ActiveJob counts the executions of its own retries; with ours that is all of them.
      def call(job)
        data = job.args
        ::ActiveJob::Base.execute({ **data, "provider_job_id" => job.id, "executions" => data["executions"].to_i + job.attempt - 1 })
        nil
      end

      # Transaction mode: what perform has written goes back before retry_on and discard_on get its error, so
      # that they find a transaction that works. What is no StandardError, such as the interrupt of a
      # continuation, is no failure, and keeps it.
      def around_perform(&perform)
        job = QueueJobs.current_job
        return perform.call unless job&.worker == ACTIVE_JOB_WORKER && job.transaction?

        in_savepoint(job.connection, &perform)
      end

      private

      def in_savepoint(connection)
        connection.begin_transaction
        error = nil
        begin
          yield
        rescue StandardError => e
          error = e
          raise
        ensure
          error ? connection.rollback_transaction : connection.commit_transaction
        end
      end
    end
  end
end

module ActiveJob
  module QueueAdapters
    # config.active_job.queue_adapter = :queue_jobs. What is enqueued within a transaction belongs to it.
    class QueueJobsAdapter
      # record_class: whose connection it takes.
      def initialize(record_class: nil)
        @record_class = record_class
      end

      # Rails 7.2 would wait for the commit, and the job could be lost. The transaction makes it.
      def enqueue_after_transaction_commit?
        false
      end

      # Rails 8.1 asks at each step of a continuation.
      def stopping?
        job = QueueJobs.current_job
        !job.nil? && job.stopping?
      end

      def enqueue(job)
        enqueue_at(job, nil)
      end

      def enqueue_at(job, timestamp)
        with_connection { |connection| insert(connection, job, timestamp) }
        raise EnqueueError, "worker #{QueueJobs::ACTIVE_JOB_WORKER} is disabled" if job.provider_job_id.nil? && defined?(EnqueueError)
      end

      # For ActiveJob.perform_all_later: all in one statement; with those that have options of their own, in one
      # transaction. Returns how many were enqueued.
      def enqueue_all(jobs)
        own, plain = jobs.partition { |job| job.queue_jobs_options.any? }
        if own.empty?
          with_connection { |connection| insert_all(connection, plain) }
        else
          record_class.transaction { insert_each(plain, own) }
        end
        jobs.each { |job| job.successfully_enqueued = !job.provider_job_id.nil? }.count(&:successfully_enqueued?)
      end

      private

      def record_class
        @record_class || ActiveRecord::Base
      end

      def with_connection(&block)
        record_class.connection_pool.with_connection(&block)
      end

      def insert_each(plain, own)
        with_connection do |connection|
          insert_all(connection, plain) unless plain.empty?
          own.each { |job| insert(connection, job, job.scheduled_at&.to_f) }
        end
      end

      def insert(connection, job, timestamp)
        own = job.queue_jobs_options
        # a debounced job is due so long after the latest call
        time = timestamp && own[:if_waiting].to_s == "debounce" ? { delay: [timestamp - Time.now.to_f, 0].max } : { run_at: timestamp && Time.at(timestamp) }
        options = { queue: job.queue_name, priority: job.priority, **time, **own }
        job.provider_job_id = QueueJobs.enqueue(connection, QueueJobs::ACTIVE_JOB_WORKER, job.serialize, **options)
      end

      def insert_all(connection, jobs)
        statement = QueueJobs::Statement.new
        arrays = { "jsonb[]" => jobs.map { |job| QueueJobs::Values.json(job.serialize) }, "text[]" => jobs.map(&:queue_name), "integer[]" => jobs.map { |job| job.priority || 0 },
                   "timestamptz[]" => jobs.map { |job| job.scheduled_at && QueueJobs::Values.timestamp(Time.at(job.scheduled_at.to_f)) } }
        context = QueueJobs::Client.context(nil)
        options = "queue => j.queue, priority => j.priority, run_at => j.run_at"
        options += ", context => #{statement.add("jsonb", context)}" if context
        rows = statement.fetch(connection, <<~SQL)
          SELECT queue_jobs.enqueue(#{statement.add("text", QueueJobs::ACTIVE_JOB_WORKER)}, j.args, #{options}) AS id
            FROM unnest(#{arrays.map { |cast, values| statement.add(cast, values) }.join(", ")}) WITH ORDINALITY AS j (args, queue, priority, run_at, n)
           ORDER BY j.n
        SQL
        jobs.zip(rows) { |job, row| job.provider_job_id = row[:id] }
      end
    end
  end
end

# Not before the adapter is there: ActiveJob::Base may be loaded only now, and looks for it.
ActiveSupport.on_load(:active_job) do
  include QueueJobs::ActiveJobOptions
  set_callback(:perform, :around, prepend: true) { |_job, perform| QueueJobs::ActiveJobHandler.around_perform(&perform) }
end
