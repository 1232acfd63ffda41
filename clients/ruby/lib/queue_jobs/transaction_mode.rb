require "queue_jobs/session"

module QueueJobs
  # Claim, handler and completion in one transaction: exactly once.
  #
  # Each thread has its connection. They take turns at claiming: the one whose turn it is waits in
  # wait_for_jobs() while there is nothing, for all of them. With a job in hand it passes the turn on, and the
  # next looks whether there is more.
  class TransactionLoop
    # A thread, its session, and the job that it runs. unreachable: its server does not take requests.
    Slot = Struct.new(:thread, :session, :job, :abandoned, :unreachable)

    # Each statement of a handler that is to end may need a cancel of its own.
    CANCEL_EVERY = 0.05
    # What a handler's ensure clauses may take after that. It is counted: seconds may pass while the machine
    # stands still.
    LAST_CANCELS = 100

    def initialize(worker)
      @worker = worker
      @turn = Mutex.new
      @waiting = Waiting.new
      @mutex = Mutex.new
      @ended_one = ConditionVariable.new
      @running = 0
      @abandoned = false
      @slots = []
    end

    def start
      @slots = Array.new(@worker.concurrency) { Slot.new }
      @slots.each do |slot|
        slot.thread = Abandoned.thread { work(slot) }
      end
    end

    # Returns when all threads have ended. After the deadline the jobs of those that have not are free again.
    def finish(deadline)
      until alive.empty? || QueueJobs.monotonic > deadline
        @waiting.interrupt
        wait_for(alive)
      end
      @abandoned = true
      alive.each { |slot| QueueJobs.log(Logger::WARN, "given_back", job: slot.job&.id, worker: slot.job&.worker) }
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
        slot.unreachable = !raw.cancel.nil?
      elsif !slot.abandoned
        slot.abandoned = true
        slot.thread.raise(Abandoned)
      end
    rescue PG::Error, ThreadError
      # Its connection is lost, or the thread has just ended.
    end

    # ---- in a thread ----

    def work(slot)
      backoff = Backoff.new(@worker.stop_request)
      until @worker.stopping?
        begin
          @worker.with_session do |session|
            slot.session = session
            columns = Job.columns(session.raw)
            backoff.reset
            nil while run_next(slot, columns)
          end
        rescue Abandoned
          return
        rescue StandardError => e
          return if @abandoned

          @worker.log_error(e, slot.session&.raw)
          backoff.pause
        end
      end
    end

    # Claims a job and runs it; false when there is to be no more.
    def run_next(slot, columns)
      job = nil
      @turn.synchronize do
        while (job = claim(slot.session, columns)) && took_its_process_along?(job)
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
    def claim(session, columns)
      # The setting has what the handler enqueues by SQL of its own inherit the context, too.
      sql = "SELECT #{columns}, set_config('queue_jobs.context', coalesce(j.context::text, ''), true) FROM queue_jobs.claim($1::text, $2::text[]) j"
      until @worker.stopping?
        session.begin
        row = Statement.fetch(session.raw, sql, [@worker.claimant, Values.array(@worker.queues)]).first
        return Job.new(row, @worker, connection: session.connection) if row

        # No ROLLBACK: the claim may have made a job dead whose last lease ran out.
        session.commit
        @waiting.wait(session.raw, @worker.queues, @worker.stop_request)
      end
    end

    def run(slot, job)
      since = QueueJobs.monotonic
      slot.job = job
      outcome = outcome_of(slot.session, job)
      slot.session.commit
      @worker.log_outcome(job, outcome, since)
      job.call_after_commit unless outcome.failed?
      true
    ensure
      slot.job = nil
    end

    # Runs the handler and reports its outcome. What a handler that fails has written goes back to the
    # savepoint.
    def outcome_of(session, job)
      session.savepoint do
        outcome = Abandoned.possible { @worker.perform(job) }
        # Or their errors would come at COMMIT.
        session.raw.exec("SET CONSTRAINTS ALL IMMEDIATE")
        outcome.report(session.raw, job)
        outcome
      end
    rescue Exception => e # rubocop:disable Lint/RescueException
      raise if @abandoned || QueueJobs.gone?(session.raw)

      outcome = Outcome.of_error(job, e)
      outcome.report(session.raw, job)
      outcome
    end
  end
end
