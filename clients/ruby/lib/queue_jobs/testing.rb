require "queue_jobs"

module QueueJobs
  # For the tests of an application: in the test's own transaction, which it rolls back in the end. Call
  # QueueJobs::Testing.run_due, or include the module.
  module Testing
    # A job that run_due has run. event: completed, failed, snoozed, waiting or continued; error: the
    # exception.
    Ran = Struct.new(:job, :event, :result, :error, keyword_init: true)

    module_function

    # Runs every job that is due for the worker's handlers here and now, also those that they enqueue; what
    # ran, in that order.
    #
    # The connection is any that enqueue takes, with a transaction under way. A handler finds it as
    # job.connection. The error of a handler is raised, unless raise_errors is false: then the job fails as it
    # would outside of a test.
    def run_due(connection, worker, max_jobs: 1000, raise_errors: true)
      session = Testing.session(connection)
      columns = Job.columns(connection)
      ran = []
      while (row = Job.claim(connection, columns, "queue_jobs.claim('test', $1::text[]) j", [Values.array(worker.queues)]).first)
        raise "more than #{max_jobs} jobs are due: do they enqueue each other for ever?" if ran.size == max_jobs

        ran << Testing.run(session, worker, Job.new(row, worker, connection: connection), raise_errors)
      end
      ran
    end

    # The jobs of that worker, finished or not, whose args contain these: Hashes with :id, :args, :state,
    # :queue, :priority, :run_at, oldest first.
    def enqueued(connection, worker, args = {})
      statement = Statement.new
      conditions = "worker = #{statement.add("text", worker)} AND args @> #{statement.add("jsonb", args)}"
      statement.fetch(connection, "SELECT id, args, state, queue, priority, run_at FROM queue_jobs.job WHERE #{conditions} ORDER BY id")
    end

    # Fails unless so many such jobs (by default: one or more) have been enqueued.
    def assert_enqueued(connection, worker, args = {}, count: nil)
      found = Testing.enqueued(connection, worker, args)
      passed = count ? found.size == count : !found.empty?
      assert_that(passed) do
        others = Testing.enqueued(connection, worker).map { |job| job[:args] }
        "#{count ? "#{count} jobs" : "a job"} of #{worker} with args #{args} should have been enqueued, and #{found.size} were; args of all of its jobs: #{others}"
      end
    end

    # Counted by Minitest if the test is one of its own.
    def assert_that(passed)
      self.assertions += 1 if respond_to?(:assertions=)
      raise defined?(Minitest::Assertion) ? Minitest::Assertion : RuntimeError, yield unless passed
    end

    def self.session(connection)
      return Session.new(connection) unless connection.respond_to?(:raw_connection)

      require "queue_jobs/record_worker"
      RecordSession.new(connection)
    end

    def self.run(session, worker, job, raise_errors)
      outcome = session.savepoint do
        worker.perform(job).tap do |result|
          session.end_work
          result.report(session.raw, job)
        end
      end
      Ran.new(job: job, event: outcome.event, result: outcome.value)
    rescue StandardError, Discard => e
      raise if raise_errors

      outcome = Outcome.of_error(job, e).write(job, ->(_error) { false }) { |one| session.savepoint { one.report(session.raw, job) } }
      Ran.new(job: job, event: outcome.event, error: e)
    end
  end
end
