require "queue_jobs/statement"
require "queue_jobs/job"

module QueueJobs
  # How a run has ended, and the call that says so to the server. event: what the log says of it.
  class Outcome
    attr_reader :event, :value, :error

    def self.of_return(job, value)
      if job.continuation
        new("continued", "continue_at", [["jsonb", job.continuation[0]], ["interval", job.continuation[1]], ["float8", job.continuation[2]]])
      else
        # A block always returns something: a PG::Result, say. What is no JSON was not meant as a result.
        value = nil unless Values.json?(value)
        new("completed", "complete", [["jsonb", value]], value: value)
      end
    end

    def self.of_snooze(delay)
      new("snoozed", "snooze", [["interval", delay]])
    end

    def self.of_error(job, error)
      return of_snooze(error.delay) if error.is_a?(Snooze)
      return new("waiting", "wait_for_signal", [["text", error.signal], ["interval", error.timeout]]) if error.is_a?(WaitForSignal)

      final = error.is_a?(Discard)
      message = Values.text(final ? error.message : "#{error.class}: #{error.message}").strip
      stack = Values.text(error.full_message(highlight: false, order: :top))
      new("failed", "fail", [["text", message], ["text", stack], ["interval", final ? nil : job.retry_delay], ["boolean", final]], error: message)
    end

    def initialize(event, function, arguments, value: nil, error: nil)
      @event = event
      @function = function
      @arguments = arguments
      @value = value
      @error = error
    end

    def failed?
      event == "failed"
    end

    def completed?
      event == "completed"
    end

    def report(connection, job)
      statement = Statement.new
      arguments = [["bigint", job.id], ["integer", job.attempt], *@arguments].map { |cast, value| statement.add(cast, value) }
      statement.fetch(connection, "SELECT queue_jobs.#{@function}(#{arguments.join(", ")})")
    end
  end
end
