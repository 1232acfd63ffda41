require "pg"

module QueueJobs
  # Set once, when the program is to stop.
  class Stop
    def initialize
      @mutex = Mutex.new
      @changed = ConditionVariable.new
      @set = false
    end

    def set?
      @set
    end

    def set
      @mutex.synchronize do
        @set = true
        @changed.broadcast
      end
    end

    def wait(seconds)
      @mutex.synchronize { @changed.wait(@mutex, seconds) unless @set }
    end
  end

  # Waits longer after each failure, up to some seconds, with jitter; briefly once the program is to stop.
  class Backoff
    def initialize(stop)
      @stop = stop
      @failures = 0
    end

    def pause
      @failures += 1
      delay = [5.0, 0.05 * 2**[@failures, 10].min].min * rand(0.5..1.0)
      @stop.set? ? sleep([delay, 0.5].min) : @stop.wait(delay)
    end

    def reset
      @failures = 0
    end
  end

  # The connection that waits for jobs, if one does, and how that wait is ended from another thread.
  class Waiting
    LONGEST = 60

    # silence: as the connection has it; a wait is answered in half of that.
    def initialize(silence)
      @seconds = [LONGEST, silence / 2.0].min
      @mutex = Mutex.new
      @connection = nil
    end

    def wait(connection, queues, stop)
      @mutex.synchronize do
        return if stop.set?

        @connection = connection
      end
      begin
        Statement.fetch(connection, "CALL queue_jobs.wait_for_jobs($1::text[], $2::interval)", [Values.array(queues), Values.interval(@seconds)])
      rescue PG::QueryCanceled
        # by interrupt
      ensure
        @mutex.synchronize { @connection = nil }
      end
    end

    # The statement that waits ends soon. One that has not reached the server yet may need it again.
    def interrupt
      @mutex.synchronize { @connection && QueueJobs.cancel(@connection) }
    end
  end

  def self.monotonic
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
