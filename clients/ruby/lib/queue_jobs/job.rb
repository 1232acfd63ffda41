require "queue_jobs/client"

module QueueJobs
  # How a handler ends its own run. No StandardError, so that a handler's own rescue lets it pass.
  class Ending < Exception; end # rubocop:disable Lint/InheritException

  # Puts the job back, no failure.
  class PutBack < Ending; end

  # Raised by job.snooze.
  class Snooze < PutBack
    attr_reader :delay

    def initialize(delay)
      super("again in #{delay}")
      @delay = Values.interval(delay)
    end
  end

  # Raised by job.wait_for_signal.
  class WaitForSignal < PutBack
    attr_reader :signal, :timeout

    def initialize(signal, timeout)
      super("waits for #{signal}")
      @signal = signal.to_s
      @timeout = Values.interval(timeout)
    end
  end

  # Raised by job.discard: the job is dead, whatever retries are left.
  class Discard < Ending; end

  # A claimed job. Its attributes are the columns of the view queue_jobs.job of the same names.
  class Job
    # What of a claimed job we ask for, if this version of the extension has it.
    COLUMNS = %i[id worker queue priority attempt max_attempts created_at run_at args context errors cursor progress batch wal_lsn].freeze

    # The list of columns to select of claim() AS j.
    def self.columns(connection)
      rows = Statement.fetch(connection, "SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = 'queue_jobs.job'::pg_catalog.regclass")
      (COLUMNS & rows.map { |row| row[:attname].to_sym }).map { |name| "j.#{name}" }.join(", ")
    end

    # Which of these come as text, and are decoded job by job.
    TEXTS = { args: Statement::JsonDecoder.new, context: Statement::JsonDecoder.new, errors: Statement::JsonDecoder.new, cursor: Statement::JsonDecoder.new,
              created_at: PG::TextDecoder::TimestampWithTimeZone.new, run_at: PG::TextDecoder::TimestampWithTimeZone.new }.freeze

    # Rows of a claim, of which Job.new makes jobs. If the server cannot send the text of one (bytes that are no
    # characters, characters that UTF-8 has not), it claims again, after the block, and looks at each by itself;
    # apart: within which it does so.
    def self.claim(connection, columns, from, values, apart: ->(&look) { look.call })
      Statement.fetch(connection, "SELECT #{columns} FROM #{from}", values, Statement::NUMBERS)
    rescue PG::UntranslatableCharacter, PG::CharacterNotInRepertoire
      yield if block_given?
      keys = Statement.fetch(connection, "SELECT j.id, j.attempt FROM #{from}", values, Statement::NUMBERS)
      keys.map { |key| read(connection, columns, key, apart) }
    end

    def self.read(connection, columns, key, apart)
      sql = "SELECT #{columns} FROM queue_jobs.job j WHERE j.id = $1::bigint"
      rows = apart.call { Statement.fetch(connection, sql, [key[:id]], Statement::NUMBERS) }
      rows.first || { **key, unreadable: RuntimeError.new("the view shows no such job") }
    rescue PG::UntranslatableCharacter, PG::CharacterNotInRepertoire => e
      { **key, unreadable: e }
    end
    private_class_method :read

    attr_reader(*COLUMNS)
    # unreadable: why it cannot be decoded.
    attr_reader :retry_delay, :continuation, :unreadable

    # connection: in transaction mode the job's own. worker: where lease mode has a connection for its
    # statements.
    def initialize(row, worker, connection: nil)
      @unreadable = row[:unreadable]
      COLUMNS.each { |name| instance_variable_set(:"@#{name}", decoded(name, row[name])) }
      @runner = worker
      @connection = connection
      @after_commit = []
      @lost = false
    end

    # In transaction mode: the connection in whose transaction the job is claimed and completed.
    def connection
      @connection or raise "only in transaction mode does a job have a connection of its own; in lease mode its handler opens one"
    end

    # Whether this is transaction mode.
    def transaction?
      !@connection.nil?
    end

    # The process is to stop: a long handler may snooze or continue_at.
    def stopping?
      @runner.stopping?
    end

    # Lease mode: the job was cancelled, or its lease ran out.
    def lost?
      @lost
    end

    def lost!
      @lost = true
    end

    # Ends the run and has the job run again after the delay; no attempt is charged. What was written in its
    # transaction is kept.
    def snooze(delay)
      raise Snooze, delay
    end

    # Ends the run and has the job run again when the signal has come, or after the timeout; at once if it has
    # come before. No attempt is charged, and what was written in its transaction is kept.
    def wait_for_signal(name, timeout: nil)
      raise WaitForSignal.new(name, timeout)
    end

    # Ends the run as failed for good: the job is dead.
    def discard(reason)
      raise Discard, reason
    end

    # If this run fails, the next attempt is due after that delay, whatever the worker's backoff says.
    def retry_in(delay)
      @retry_delay = Values.interval(delay)
    end

    # When the handler returns, the job is not completed, but runs again from this cursor.
    def continue_at(cursor, delay: nil, progress: nil)
      @continuation = [WrittenJson.new(Values.json(cursor)), Values.interval(delay), progress]
      nil
    end

    # Says how far the job is: others see it at once in the view job. What is left out stays as this run has said
    # before.
    def report(progress = nil, message = nil)
      call(:report, ["bigint", id], ["integer", attempt], ["float8", progress], ["text", message])
      nil
    end

    # Transaction mode: calls the block when the run has been committed. It is lost if the process ends just
    # then; a job of its own is not.
    def after_commit(&block)
      @after_commit << block
    end

    def call_after_commit
      @after_commit.each do |block|
        block.call
      rescue Exception => e # rubocop:disable Lint/RescueException
        QueueJobs.log(Logger::ERROR, "after_commit", job: id, worker: worker, error: Outcome.describe(e))
      end
    end

    # Calls the block once per job and name; a later run gets what it returned. In transaction mode the value
    # belongs to the transaction of the run: it goes back with it if the handler fails.
    def step(name)
      @steps ||= call(:steps, ["bigint", id]) || {}
      name = name.to_s
      return @steps[name] if @steps.key?(name)

      text = Values.json(yield)
      call(:save_step, ["bigint", id], ["integer", attempt], ["text", name], ["jsonb", WrittenJson.new(text)])
      @steps[name] = JSON.parse(text, max_nesting: false)
    end

    # The payloads of the signals that were sent to this job so far, by their names.
    def signals
      call(:signals, ["bigint", id])
    end

    # The payload of the signal of that name; nil if it has not come. (Its payload may be nil, too: then signals
    # has the name.)
    def signal_payload(name)
      signals[name.to_s]
    end

    # Sends a signal to another job.
    def signal(job, name, payload = nil)
      with_connection { |connection| QueueJobs.signal(connection, job, name, payload) }
    end

    # Enqueues another job: in transaction mode with this run's end, or not at all; in lease mode at once.
    def enqueue(worker, args = {}, **options)
      with_connection { |connection| QueueJobs.enqueue(connection, worker, args, **options) }
    end

    def enqueue_many(worker, args, **options)
      with_connection { |connection| QueueJobs.enqueue_many(connection, worker, args, **options) }
    end

    # What the members of a batch have returned, as Hashes with :job, :step, :worker, :args, :state, :result.
    # By default of the batch whose callback this is, or else of the job's own.
    def batch_results(batch = nil)
      batch ||= (args["batch"] if args.is_a?(Hash)) || self.batch
      fetch("SELECT job, step, worker, args, state, result FROM queue_jobs.batch_results(%s)", ["bigint", batch])
    end

    # In a workflow: what the steps before this one have returned, by their names.
    def results
      return {} if batch.nil?

      rows = fetch("SELECT r.step, r.result FROM queue_jobs.workflow_step s JOIN queue_jobs.batch_results(s.batch) r ON r.step = ANY (s.after)
                     WHERE s.batch = %s AND s.job = %s", ["bigint", batch], ["bigint", id])
      rows.to_h { |row| [row[:step], row[:result]] }
    end

    def inspect
      "#<#{self.class} #{id} of #{worker}, attempt #{attempt}>"
    end

    private

    def decoded(name, value)
      value.is_a?(String) && TEXTS.key?(name) ? TEXTS[name].decode(value) : value
    rescue Exception => e # rubocop:disable Lint/RescueException
      @unreadable = e
      nil
    end

    def with_connection(&block)
      @connection ? block.call(@connection) : @runner.aside(&block)
    end

    def fetch(sql, *parameters)
      statement = Statement.new
      sql = format(sql, *parameters.map { |cast, value| statement.add(cast, value) })
      with_connection { |connection| statement.fetch(connection, sql) }
    end

    def call(function, *parameters)
      fetch("SELECT queue_jobs.#{function}(#{(["%s"] * parameters.size).join(", ")}) AS value", *parameters).first[:value]
    end
  end
end
