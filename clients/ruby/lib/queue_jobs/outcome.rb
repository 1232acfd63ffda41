require "queue_jobs/statement"
require "queue_jobs/job"

module QueueJobs
  # How a run has ended, and the call that says so to the server. event: what the log says of it.
  class Outcome
    LONGEST_ERROR = 2000
    LONGEST_STACK = 20_000
    # How long a job is put back of which not even a failure can be written.
    UNWRITABLE_DELAY = "1 min"

    attr_reader :event, :value, :error

    def self.of_return(job, value)
      if job.continuation
        new("continued", "continue_at", [["jsonb", job.continuation[0]], ["interval", job.continuation[1]], ["float8", job.continuation[2]]])
      else
        # A block always returns something: a PG::Result, say. What is no JSON was not meant as a result.
        value = nil if Values.foreign?(value)
        new("completed", "complete", [["jsonb", value.nil? ? nil : WrittenJson.new(Values.json(value))]], value: value)
      end
    end

    def self.of_snooze(delay, **more)
      new("snoozed", "snooze", [["interval", delay]], **more)
    end

    def self.of_error(job, error)
      case error
      when Snooze then of_snooze(error.delay)
      when WaitForSignal then new("waiting", "wait_for_signal", [["text", error.signal], ["interval", error.timeout]])
      else
        final = Discard === error # rubocop:disable Style/CaseEquality
        stack = Values.said(LONGEST_STACK) { error.full_message(highlight: false, order: :top) }
        of_failure(describe(error, final), stack, final ? nil : job.retry_delay, final)
      end
    end

    def self.of_failure(message, stack = nil, delay = nil, final = false, **more)
      new("failed", "fail", [["text", message], ["text", stack], ["interval", delay], ["boolean", final]], error: message, final: final, **more)
    end

    def self.describe(error, without_class = false)
      name = Values.said(LONGEST_ERROR) { error.class.name || error.class } || "error"
      message = Values.said(LONGEST_ERROR) { error.message }
      return "#{name}, whose message cannot be made" unless message

      (without_class ? message : "#{name}: #{message}").strip
    end

    private_class_method :of_failure

    # stage: 0 for what the handler has brought about, higher for what takes the place of what was refused.
    def initialize(event, function, arguments, value: nil, error: nil, final: false, stage: 0)
      @event = event
      @function = function
      @arguments = arguments
      @value = value
      @error = error
      @final = final
      @stage = stage
    end

    def failed?
      event == "failed"
    end

    def completed?
      event == "completed"
    end

    # The result, as text.
    def json
      @arguments[0][1]&.text
    end

    def report(connection, job)
      statement = Statement.new
      arguments = [["bigint", job.id], ["integer", job.attempt], *@arguments].map do |cast, value|
        parameter = statement.add(cast, value)
        # A delay below zero, such as a Retry-After that has passed, is none.
        cast == "interval" && !value.nil? ? "greatest(#{parameter}, '0')" : parameter
      end
      statement.fetch(connection, "SELECT queue_jobs.#{@function}(#{arguments.join(", ")})")
    end

    # Has the block report this outcome or, if that is refused, what takes its place: a failure that has its
    # text, one in which nothing is left to be refused, then the job is put back. Returns what was reported.
    # give_up: whether an error is none of the outcome's; it is raised then.
    def write(job, give_up)
      outcome = self
      begin
        yield outcome
      rescue StandardError => e
        other = give_up.call(e) ? nil : outcome.instead(e)
        raise unless other

        QueueJobs.log(Logger::ERROR, "error", job: job.id, worker: job.worker, attempt: job.attempt, outcome: outcome.event, error: Outcome.describe(e))
        outcome = other
        retry
      end
      outcome
    end

    # What takes its place; nil if there is nothing more to try.
    def instead(refusal)
      why = Outcome.describe(refusal)
      case @stage
      when 0
        return Outcome.send(:of_failure, "#{"#{event}: " unless completed?}#{why}", stage: 1) unless failed?

        instead_plainly(why)
      when 1 then instead_plainly(why)
      when 2 then Outcome.of_snooze(UNWRITABLE_DELAY, stage: 3)
      end
    end

    private

    def instead_plainly(why)
      text = failed? && @error != why ? "#{@error} (which could not be written: #{why})" : why
      Outcome.send(:of_failure, Values.plain(text)[0, LONGEST_ERROR], nil, nil, @final, stage: 2)
    end
  end
end
