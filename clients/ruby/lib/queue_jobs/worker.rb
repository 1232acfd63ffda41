require "securerandom"
require "socket"
require "pg"
require "queue_jobs/outcome"
require "queue_jobs/waiting"
require "queue_jobs/session"
require "queue_jobs/lease_mode"
require "queue_jobs/transaction_mode"

module QueueJobs
  # Claims jobs and calls their handlers, until it is to stop.
  #
  # conninfo     as PG.connect takes it; "" is what PGHOST and the like say. Direct to the server, not
  #              through a pooler in transaction mode
  # queues       names, "namespace:*", "*", or selectors; by default the workers that have a handler here
  # mode         :transaction: claim, handler and completion are one transaction, exactly once;
  #              :lease: at least once, for work outside of the database
  # concurrency  how many handlers run at once, each in a thread
  # batch        lease mode: how many jobs it has in hand at most, running or not begun; by default as many
  #              as run at once
  # lease        seconds for which a job is ours without a heartbeat; a heartbeat comes three times as often
  # grace        seconds from SIGTERM until what still runs is given back
  # silence      seconds without an answer after which a connection counts as lost
  # name         what the claimant's name begins with; each start gets one of its own
  # connect      makes a PG::Connection, instead of conninfo
  class Worker
    MODES = { transaction: TransactionLoop, lease: LeaseLoop }.freeze

    # How long a job for which there is no handler is left to processes of another version.
    NO_HANDLER_DELAY = "1 min"

    attr_accessor :lease, :grace, :name, :silence
    attr_writer :queues
    attr_reader :handlers, :mode, :concurrency, :batch, :claimant, :stop_request

    def initialize(conninfo = "", queues: nil, mode: :transaction, concurrency: 1, batch: nil, lease: 300, grace: 25, silence: 120, name: nil, connect: nil)
      self.mode = mode
      resize(concurrency, batch)
      @queues = queues
      @lease = lease
      @grace = grace
      @silence = silence
      @name = name
      @connect = connect || -> { QueueJobs.connect(conninfo) }
      @handlers = {}
      @middleware = []
      @stop_request = Stop.new
    end

    def mode=(mode)
      raise ArgumentError, "mode is :transaction or :lease, not #{mode.inspect}" unless MODES.key?(mode.to_sym)

      @mode = mode.to_sym
    end

    # How many handlers run at once, and how many jobs lease mode has in hand.
    def resize(concurrency, batch = nil)
      batch ||= concurrency
      raise ArgumentError, "concurrency is at least 1, and batch at least as much" if concurrency < 1 || batch < concurrency

      @concurrency = concurrency
      @batch = batch
    end

    # The block, or an object with the method call, does the jobs of that worker. It takes a Job; what it
    # returns is the result.
    def handle(worker, handler = nil, &block)
      raise ArgumentError, "worker #{worker} has a handler already" if @handlers.key?(worker.to_s)

      handler ||= block
      raise ArgumentError, "the handler of #{worker} is a block, or has the method call" unless handler.respond_to?(:call)

      @handlers[worker.to_s] = handler
    end

    # Is called around each handler: call(job) { … }, or a block |job, call_next|. It returns what the handler
    # returned. The first is the outermost.
    def use(middleware = nil, &block)
      @middleware << (middleware ? ->(job, call_next) { middleware.call(job, &call_next) } : block)
    end

    # ---- running ----

    def stopping?
      @stop_request.set?
    end

    # Has run end: nothing more is claimed, what runs is finished or, after the grace time, given back. May be
    # called in a signal handler.
    def stop
      @stops&.push(true)
    end

    # Works until stop, which SIGTERM and SIGINT call if this is the main thread.
    def run
      @claimant = [name || Socket.gethostname, Process.pid, SecureRandom.hex(4)].join("-")
      @stop_request = Stop.new
      @stops = Queue.new
      @loop = MODES[mode].new(self)
      with_signals do
        QueueJobs.log(Logger::INFO, "started", claimant: claimant, mode: mode, concurrency: concurrency, queues: queues)
        @claimed = false
        @loop.start
        refused = until_stop
        @stop_request.set
        QueueJobs.log(Logger::INFO, "stopping", claimant: claimant, grace: grace)
        @loop.finish(QueueJobs.monotonic + grace)
        QueueJobs.log(Logger::INFO, "stopped", claimant: claimant)
        raise refused if refused
      end
    end

    # ---- what the loops tell ----

    # The server has taken a claim. What it refuses from now on may come back.
    def claimed
      @claimed = true
    end

    # An error that has a thread begin again after a pause; false if it ends the worker instead, since the
    # server has taken no claim yet, and never will.
    def failed(error, connection = nil)
      log_error(error, connection)
      return true if @claimed || !QueueJobs.hopeless?(error)

      @stops&.push(error)
      false
    end

    # Has the thread of run call the block.
    def later(&block)
      @stops&.push(block)
    end

    def queues
      return @queues if @queues
      raise ArgumentError, "no handler is registered, and no queue is named" if @handlers.empty?

      ["worker=#{@handlers.keys.sort.join(",")}"]
    end

    # ---- connections ----

    def connect
      prepared(@connect.call)
    end

    # Transaction mode: a thread's own.
    def with_session
      session = Session.new(connect)
      yield session
    ensure
      session&.close
    end

    # Lease mode: does something with the connection that heartbeats go through.
    def aside(&block)
      @loop.side.use(&block)
    end

    # ---- one job ----

    # Calls the handler within the middleware; returns the outcome of its return. Its error is raised, but for
    # one that puts the job back.
    def perform(job)
      handler = @handlers[job.worker]
      return no_handler(job) unless handler || job.worker.nil?
      raise "the job cannot be read: #{Outcome.describe(job.unreadable)}" if job.unreadable

      QueueJobs.with_current_job(job) { Outcome.of_return(job, call_through(@middleware, handler, job)) }
    rescue PutBack => e
      Outcome.of_error(job, e)
    end

    def log_outcome(job, outcome, since)
      context = job.context
      QueueJobs.log(outcome.failed? ? Logger::WARN : Logger::INFO, outcome.event, job: job.id, worker: job.worker, attempt: job.attempt,
                    seconds: (QueueJobs.monotonic - since).round(4), error: outcome.error, traceparent: (context["traceparent"] if context.is_a?(Hash)))
    end

    # An error that has a thread connect again.
    def log_error(error, connection = nil)
      event = QueueJobs.lost?(connection, error) ? "disconnected" : "error"
      QueueJobs.log(Logger::WARN, event, claimant: claimant, error: Outcome.describe(error), sqlstate: QueueJobs.said_sqlstate(error), timeout: QueueJobs.timeout(error))
    end

    private

    # Does what the loops ask for until stop, or an error that will not pass; returns that.
    def until_stop
      loop do
        case (said = @stops.pop)
        when Proc then said.call
        when Exception
          QueueJobs.log(Logger::ERROR, "refused", claimant: claimant, error: Outcome.describe(said), sqlstate: QueueJobs.said_sqlstate(said))
          return said
        else return nil
        end
      end
    end

    def prepared(raw, settings = {})
      QueueJobs.prepare(raw, silence, settings)
    rescue StandardError
      raw.close unless raw.finished?
      raise
    end

    def call_through(middleware, handler, job)
      first, *rest = middleware
      first ? first.call(job, -> { call_through(rest, handler, job) }) : handler.call(job)
    end

    def no_handler(job)
      QueueJobs.log(Logger::ERROR, "no_handler", job: job.id, worker: job.worker)
      Outcome.of_snooze(NO_HANDLER_DELAY)
    end

    def with_signals
      before = Thread.current == Thread.main ? %w[TERM INT].to_h { |signal| [signal, trap(signal) { stop }] } : {}
      yield
    ensure
      before.each { |signal, handler| trap(signal, handler || "DEFAULT") }
    end
  end
end
