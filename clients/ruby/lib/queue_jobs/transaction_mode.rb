require "queue_jobs/session"

module QueueJobs
  # Claim, handler and completion in one transaction: exactly once.
  #
  # Each thread has its connection. They take turns at claiming: the one whose turn it is waits in
  # wait_for_jobs() while there is nothing, for all of them. With a job in hand it passes the turn on, and the
  # next looks whether there is more.
  class TransactionLoop
    # A thread, its session, its backoff, and the job that it runs. unreachable: its server does not take
    # requests.
    Slot = Struct.new(:thread, :session, :backoff, :job, :abandoned, :unreachable)

    # Each statement of a handler that is to end may need a cancel of its own.
    CANCEL_EVERY = 0.05
    # What a handler's ensure clauses may take after that. It is counted: seconds may pass while the machine
    # stands still.
    LAST_CANCELS = 100

    def initialize(worker)
      @worker = worker
      @turn = Mutex.new
      @waiting = Waiting.new(worker.silence)
      # By job and attempt, why the transaction has ended without an outcome: charged when it is claimed again.
      @owed = {}
      @mutex = Mutex.new
      @ended_one = ConditionVariable.new
      @running = 0
      @abandoned = false
      @slots = []
    end

    def start
      @slots = Array.new(@worker.concurrency) { Slot.new }
      @slots.each { |slot| start_thread(slot) }
    end

    def start_thread(slot)
      slot.backoff = Backoff.new(@worker.stop_request)
      slot.thread = Abandoned.thread { work(slot) }
    end

    # Returns when all threads have ended. After the deadline the jobs of those that have not are free again.
    def finish(deadline)
      until alive.empty? || QueueJobs.monotonic > deadline
        @waiting.interrupt
        wait_for(alive)
      end
      @abandoned = true
      alive.each { |slot| QueueJobs.log(Logger::WARN, "given_back", job: slot.job&.id, worker: slot.job&.worker, attempt: slot.job&.attempt) }
      LAST_CANCELS.times { end_handlers(alive.reject(&:unreachable)) }
    end

    private

    def alive
      @slots.select { |slot| slot.thread.alive? }
    end

    def wait_for(slots)
      slots.first&.thread&.join(CANCEL_EVERY)
    end

    def end_handlers(slots)
      slots.each { |slot| end_handler(slot) }
      wait_for(slots)
    end

    # The statement that the handler waits for, or else what it does in Ruby.
    def end_handler(slot)
      raw = slot.session&.raw
      if raw && !raw.finished? && raw.transaction_status == PG::PQTRANS_ACTIVE
        slot.unreachable = !QueueJobs.cancel(raw).nil?
      elsif !slot.abandoned
        slot.abandoned = true
        slot.thread.raise(Abandoned)
      end
    rescue PG::Error, ThreadError
      # Its connection is lost, or the thread has just ended.
    end

    # ---- in a thread ----

    def work(slot)
      until @worker.stopping?
        begin
          @worker.with_session do |session|
            slot.session = session
            columns = Job.columns(session.raw)
            nil while run_next(slot, columns)
          end
        rescue Abandoned
          return
        rescue StandardError => e
          return if @abandoned || !@worker.failed(e, slot.session&.raw)

          slot.backoff.pause
        end
      end
    end

    # Claims a job and runs it; false when there is to be no more.
    def run_next(slot, columns)
      job = nil
      @turn.synchronize do
        while (job = claim(slot, columns)) && took_its_process_along?(job)
          # It may do so again, with every job that has a transaction open here: so it runs alone, and nothing
          # is claimed meanwhile.
          return run(slot, job) if @mutex.synchronize { @running.zero? }

          slot.session.rollback
          @mutex.synchronize { @ended_one.wait(@mutex) until @running.zero? }
        end
        return false unless job

        @mutex.synchronize { @running += 1 }
      end
      run_beside_others(slot, job)
    end

    def run_beside_others(slot, job)
      run(slot, job)
    ensure
      @mutex.synchronize do
        @running -= 1
        @ended_one.broadcast
      end
    end

    def took_its_process_along?(job)
      last = job.errors&.last
      last.is_a?(Hash) && last["sqlstate"] == "57P02"
    end

    # The next job, in a transaction that has begun; nil when the program is to stop.
    def claim(slot, columns)
      session = slot.session
      # The setting has what the handler enqueues by SQL of its own inherit the context, too.
      columns = "#{columns}, set_config('queue_jobs.context', coalesce(j.context::text, ''), true)"
      until @worker.stopping?
        session.begin
        row = claimed_row(session, columns)
        @worker.claimed
        return Job.new(row, @worker, connection: session.connection) if row

        # No ROLLBACK: the claim may have made a job dead whose last lease ran out.
        session.commit
        @waiting.wait(session.raw, @worker.queues, @worker.stop_request)
        slot.backoff.reset
      end
    end

    def claimed_row(session, columns)
      values = [@worker.claimant, Values.array(@worker.queues)]
      Job.claim(session.raw, columns, "queue_jobs.claim($1::text, $2::text[]) j", values, apart: session.method(:savepoint)) do
        session.rollback
        session.begin
      end.first
    end

    def run(slot, job)
      since = QueueJobs.monotonic
      slot.job = job
      outcome = outcome_of(slot.session, job)
      slot.session.commit
      slot.backoff.reset
      @worker.log_outcome(job, outcome, since)
      job.call_after_commit if outcome.error.nil?
      true
    rescue StandardError => e
      owe(slot, job, e)
      raise # and what the session has left is rolled back
    ensure
      replace(slot, job) if Thread.current.status == "aborting"
      slot.job = nil
    end

    # Runs the handler and reports its outcome. What a handler that fails has written goes back to the
    # savepoint.
    def outcome_of(session, job)
      session.savepoint do
        outcome = session.raw.lend { call(session, job) }
        outcome.report(session.raw, job)
        outcome
      end
    rescue Exception => e # rubocop:disable Lint/RescueException
      raise if @abandoned || QueueJobs.gone?(session.raw)

      give_up = ->(error) { @abandoned || QueueJobs.lost?(session.raw, error) }
      Outcome.of_error(job, e).write(job, give_up) { |outcome| session.savepoint { outcome.report(session.raw, job) } }
    end

    def call(session, job)
      owed = @mutex.synchronize { @owed.delete([job.id, job.attempt]) }
      raise owed if owed

      outcome = Abandoned.possible { @worker.perform(job) }
      session.end_work
      outcome
    rescue Abandoned => e
      raise if @abandoned

      raise "#{Outcome.describe(e)} (by the handler)"
    end

    # The transaction ends without the outcome. If the server is there, or a timeout has ended the session, that
    # is the job's fault: the handler has ended the transaction, say, by some other way than its connection.
    def owe(slot, job, error)
      timeout = QueueJobs.timeout(error)
      return if @abandoned || (!timeout && QueueJobs.lost?(slot.session.raw, error))

      why = timeout ? "#{timeout} has ended the session of the job" : "the transaction of the job has ended without its outcome"
      @mutex.synchronize { @owed[[job.id, job.attempt]] = RuntimeError.new("#{why}: #{Outcome.describe(error)}") }
    end

    # The handler has ended its thread (Thread.exit): another takes its place. (Or the program ends.)
    def replace(slot, job)
      @owed[[job.id, job.attempt]] = RuntimeError.new("the handler has ended its thread")
      @worker.later { start_thread(slot) }
    end
  end
end
