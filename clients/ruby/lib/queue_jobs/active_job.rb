require "active_job"
require "queue_jobs/record_worker"

module QueueJobs
  # Each job of ActiveJob is one of this worker, whose args are what ActiveJob serializes.
  ACTIVE_JOB_WORKER = "active_job"

  # Runs the jobs that the adapter has enqueued.
  def self.active_job_worker(**options)
    RecordWorker.new(**options).tap { |worker| worker.handle(ACTIVE_JOB_WORKER, ActiveJobHandler) }
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
        options = { queue: job.queue_name, priority: job.priority, run_at: timestamp && Time.at(timestamp) }
        job.provider_job_id = with_connection { |connection| QueueJobs.enqueue(connection, QueueJobs::ACTIVE_JOB_WORKER, job.serialize, **options) }
        raise EnqueueError, "worker #{QueueJobs::ACTIVE_JOB_WORKER} is disabled" if job.provider_job_id.nil? && defined?(EnqueueError)
      end

      # For ActiveJob.perform_all_later: all in one statement. Returns how many were enqueued.
      def enqueue_all(jobs)
        ids = with_connection { |connection| insert_all(connection, jobs) }
        jobs.zip(ids) do |job, id|
          job.provider_job_id = id
          job.successfully_enqueued = !id.nil?
        end
        ids.compact.size
      end

      private

      def with_connection(&block)
        (@record_class || ActiveRecord::Base).connection_pool.with_connection(&block)
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
        rows.map { |row| row[:id] }
      end
    end
  end
end

# Not before the adapter is there: ActiveJob::Base may be loaded only now, and looks for it.
ActiveSupport.on_load(:active_job) do
  set_callback(:perform, :around, prepend: true) { |_job, perform| QueueJobs::ActiveJobHandler.around_perform(&perform) }
end
