require "monitor"
require "queue_jobs/session"

module QueueJobs
  # Jobs by lease, for work outside of the database: at least once.
  #
  # One thread claims for all, and the statement that claims the next jobs completes those that are done.
  # While it waits in wait_for_jobs() the threads report through a second connection, which also has the
  # heartbeats.
  class LeaseLoop
    # A job in hand. With an outcome, it waits for that to be reported.
    Run = Struct.new(:job, :since, :outcome) do
      def key
        [job.id, job.attempt]
      end
    end

    # A connection for short statements of all threads, made when it is first used, and again after it was
    # lost.
    class Side
      def initialize(worker)
        @worker = worker
        @monitor = Monitor.new
      end

      def use
        @monitor.synchronize do
          @connection ||= @worker.connect
          yield @connection
        rescue StandardError => e
          close if QueueJobs.lost?(@connection, e)
          raise
        end
      end

      def close
        @connection.close if @connection && !@connection.finished?
        @connection = nil
      end
    end

    # What is left to be reported after the time to stop may take so long.
    LAST_SECONDS = 5
    INTERRUPT_EVERY = 0.05

    attr_reader :side

    def initialize(worker)
      @worker = worker
      @side = Side.new(worker)
      @waiting = Waiting.new(worker.silence)
      @monitor = Monitor.new
      @changed = @monitor.new_cond
      @held = {}
      @ready = []
      @claimer_waits = false
      @abandoned = false
      @ended = Stop.new
    end

    def start
      @claimer = Thread.new { claim_for_all }
      @keeper = Thread.new { keep_leases }
      @threads = Array.new(@worker.concurrency) { handler_thread }
    end

    def handler_thread
      Abandoned.thread { call_handlers }
    end

    # What was not begun is given back at once, what still runs after the deadline then.
    def finish(deadline)
      change do
        @ready.each { |run| run.outcome = Outcome.of_snooze("0") }
        @ready.clear
      end
      wait_for_end(deadline)
      abandon
      wait_for_end(QueueJobs.monotonic + LAST_SECONDS)
      @ended.set
      @threads.each { |thread| thread.join(LAST_SECONDS) }
      @keeper.join(LAST_SECONDS)
      @side.close
    end

    private

    def change
      @monitor.synchronize do
        result = yield
        @changed.broadcast
        result
      end
    end

    def wait_for_end(deadline)
      while @claimer.alive? && QueueJobs.monotonic < deadline
        @waiting.interrupt
        @claimer.join(INTERRUPT_EVERY)
      end
    end

    def abandon
      late = change do
        @abandoned = true
        @held.each_value.reject(&:outcome).each { |run| run.outcome = Outcome.of_snooze("0") }
      end
      late.each { |run| QueueJobs.log(Logger::WARN, "given_back", job: run.job.id, worker: run.job.worker, attempt: run.job.attempt) }
      @threads.each { |thread| thread.raise(Abandoned) if thread.alive? }
    end

    # ---- threads that run handlers ----

    def call_handlers
      while (run = next_to_run)
        begin
          report(run, outcome_of(run.job))
        ensure
          replace_thread(run) if Thread.current.status == "aborting"
        end
      end
    end

    # The handler has ended its thread (Thread.exit): another takes its place. (Or the program ends.)
    def replace_thread(run)
      ended = Thread.current
      @worker.later do
        @threads[@threads.index(ended)] = handler_thread
        leave_to_claimer(run, Outcome.of_error(run.job, RuntimeError.new("the handler has ended its thread")))
      end
    end

    def next_to_run
      @monitor.synchronize do
        @changed.wait_until { !@ready.empty? || @worker.stopping? }
        return if @worker.stopping? # what is ready is given back

        run = @ready.shift
        run.since = QueueJobs.monotonic
        run
      end
    end

    def outcome_of(job)
      Abandoned.possible { @worker.perform(job) }
    rescue Exception => e # rubocop:disable Lint/RescueException
      raise if @abandoned && e.is_a?(Abandoned)

      Outcome.of_error(job, e)
    end

    # Has the claimer report it with its next claim, or does so itself while the claimer waits.
    def report(run, outcome)
      return if change { @abandoned || (run.outcome = outcome unless @claimer_waits) }

      begin
        @side.use { |connection| deliver(connection, run, outcome) }
        forget([run])
      rescue StandardError => e
        @worker.log_error(e)
        leave_to_claimer(run, outcome)
      end
    end

    def leave_to_claimer(run, outcome)
      change { run.outcome ||= outcome }
      @monitor.synchronize do
        while @claimer_waits
          @waiting.interrupt
          @changed.wait(INTERRUPT_EVERY)
        end
      end
    end

    # ---- the thread that claims ----

    def claim_for_all
      backoff = Backoff.new(@worker.stop_request)
      until @ended.set?
        begin
          connection = @worker.connect
          columns = Job.columns(connection)
          give_back_unknown(connection)
          backoff.reset while turn(connection, columns)
          return
        rescue StandardError => e
          return unless @worker.failed(e, connection)

          backoff.pause
        ensure
          connection.close if connection && !connection.finished?
        end
      end
    end

    # Gives back what a claim took whose answer was lost with its connection: our heartbeats would keep it for
    # ever.
    def give_back_unknown(connection)
      rows = Statement.fetch(connection, "SELECT id, attempt FROM queue_jobs.job WHERE claimant = $1::text AND state = 'executing'", [@worker.claimant])
      unknown = @monitor.synchronize { rows.reject { |row| @held.key?([row[:id], row[:attempt]]) } }
      return if unknown.empty?

      Statement.fetch(connection, "SELECT queue_jobs.snooze_many($1::bigint[], $2::integer[], '0')", [Values.array(unknown.map { |row| row[:id] }), Values.array(unknown.map { |row| row[:attempt] })])
    rescue PG::Error => e
      raise if QueueJobs.lost?(connection, e)

      @worker.log_error(e, connection)
    end

    # Reports, claims, and waits if there was nothing to do; false at the end.
    def turn(connection, columns)
      done, free = wait_for_turn
      return !@monitor.synchronize { @held.empty? } if @worker.stopping? && done.empty?

      completed, others = done.partition { |run| run.outcome.completed? }
      others.each do |run|
        deliver(connection, run, run.outcome)
        forget([run])
      end
      rows = exchange(connection, columns, completed, free)
      forget(completed)
      take(rows)
      wait(connection) if done.empty? && rows.empty?
      true
    end

    # What is done, and how many may be claimed.
    def wait_for_turn
      @monitor.synchronize do
        @changed.wait_until { !done.empty? || (@worker.stopping? ? @held.empty? : free.positive?) }
        [done, @worker.stopping? ? 0 : free + done.size]
      end
    end

    def done
      @held.each_value.select(&:outcome)
    end

    def free
      @worker.batch - @held.size
    end

    def forget(runs)
      change { runs.each { |run| @held.delete(run.key) } }
    end

    def take(rows)
      change do
        rows.each do |row|
          run = Run.new(Job.new(row, @worker), QueueJobs.monotonic)
          @held[run.key] = run
          @worker.stopping? ? run.outcome = Outcome.of_snooze("0") : @ready << run
        end
      end
    end

    def wait(connection)
      @monitor.synchronize do
        return if @worker.stopping? || !done.empty?

        @claimer_waits = true
      end
      @waiting.wait(connection, @worker.queues, @worker.stop_request)
    ensure
      change { @claimer_waits = false }
    end

    # Completes and claims in one statement, whose commit does for both. If that is refused, it does so one by
    # one.
    def exchange(connection, columns, completed, free)
      return free.positive? ? claim(connection, columns, free) : [] if completed.empty?

      begin
        rows = complete_and_claim(connection, columns, completed, free)
      rescue PG::Error => e
        raise if QueueJobs.lost?(connection, e)

        completed.each { |run| deliver(connection, run, run.outcome) }
        return free.positive? ? claim(connection, columns, free) : []
      end
      completed.each { |run| @worker.log_outcome(run.job, run.outcome, run.since) }
      rows
    end

    def claim(connection, columns, free)
      statement = Statement.new
      rows = Job.claim(connection, columns, claim_call(statement, free), statement.values)
      @worker.claimed
      rows
    end

    # By the outer join nothing is claimed before they are completed.
    def complete_and_claim(connection, columns, completed, free)
      statement = Statement.new
      complete = format("queue_jobs.complete_many(%s, %s, %s)", statement.add("bigint[]", completed.map { |run| run.job.id }),
                        statement.add("integer[]", completed.map { |run| run.job.attempt }),
                        statement.add("jsonb[]", completed.map { |run| run.outcome.json }))
      return statement.fetch(connection, "SELECT #{complete}") && [] unless free.positive?

      rows = statement.fetch(connection, "SELECT #{columns} FROM #{complete} LEFT JOIN #{claim_call(statement, free)} ON true", Statement::NUMBERS)
      rows.reject { |row| row[:id].nil? }
    end

    def claim_call(statement, free)
      format("queue_jobs.claim(%s, %s, %s, %s) j", statement.add("text", @worker.claimant), statement.add("text[]", @worker.queues),
             statement.add("integer", free), statement.add("interval", @worker.lease))
    end

    # Reports one outcome, or what takes its place if it is refused. One that comes too late is dropped.
    def deliver(connection, run, outcome)
      give_up = ->(error) { QueueJobs.sqlstate(error) == "55000" || QueueJobs.may_pass?(error) || QueueJobs.lost?(connection, error) }
      written = outcome.write(run.job, give_up) { |one| one.report(connection, run.job) }
      @worker.log_outcome(run.job, written, run.since)
    rescue PG::Error => e
      raise if QueueJobs.may_pass?(e) || QueueJobs.lost?(connection, e)

      # Stale, or it cannot even be put back: then it is left alone until this worker ends, and its lease.
      stale = QueueJobs.sqlstate(e) == "55000"
      QueueJobs.log(stale ? Logger::WARN : Logger::ERROR, stale ? "stale" : "error", job: run.job.id, worker: run.job.worker, attempt: run.job.attempt,
                    outcome: outcome.event, error: Outcome.describe(e))
    end

    # ---- the thread that keeps the leases ----

    def keep_leases
      pause = @worker.lease / 3.0
      until @ended.set?
        @ended.wait(pause)
        pause = beat ? @worker.lease / 3.0 : [1.0, @worker.lease / 10.0].min
      end
    end

    # False if it should be tried again soon.
    def beat
      before = @monitor.synchronize { @held.values }
      return true if before.empty? || @ended.set?

      rows = @side.use { |connection| Statement.fetch(connection, "SELECT * FROM queue_jobs.heartbeat($1::text) AS id", [@worker.claimant]) }
      tell_lost(before, rows.map { |row| row[:id] })
      true
    rescue StandardError => e
      @worker.log_error(e)
      false
    end

    def tell_lost(before, ids)
      lost = @monitor.synchronize { before.select { |run| !ids.include?(run.job.id) && run.outcome.nil? && @held[run.key].equal?(run) && !run.job.lost? } }
      lost.each do |run|
        run.job.lost!
        QueueJobs.log(Logger::WARN, "lost", job: run.job.id, worker: run.job.worker, attempt: run.job.attempt)
      end
    end
  end
end
