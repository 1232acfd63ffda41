require "pg"

module QueueJobs
  # Thrown into a thread whose handler has not ended in time.
  class Abandoned < Exception # rubocop:disable Lint/InheritException
    # A thread that can be abandoned, but only while it calls a handler.
    def self.thread(&block)
      Thread.new do
        Thread.handle_interrupt(self => :never, &block)
      rescue self
        # Its last handler had just ended.
      end
    end

    def self.possible(&block)
      Thread.handle_interrupt(self => :immediate, &block)
    end
  end

  # A thread's connection in transaction mode, and how its transactions begin and end.
  class Session
    attr_reader :raw

    def initialize(raw)
      @raw = raw
    end

    # What a handler is given.
    def connection
      raw
    end

    def begin
      raw.exec("BEGIN")
    end

    def commit
      raw.exec("COMMIT")
    end

    def rollback
      raw.exec("ROLLBACK")
    end

    def savepoint
      begin_savepoint
      value = yield
      release_savepoint
      value
    rescue Abandoned
      raise # its statement may be under way yet; close ends the transaction
    rescue Exception # rubocop:disable Lint/RescueException
      roll_back_to_savepoint unless QueueJobs.gone?(raw)
      raise
    end

    # Ends what is under way by a ROLLBACK: the mere end of its session would be charged to the job.
    def close
      raw.exec("ROLLBACK") until raw.finished? || [PG::PQTRANS_IDLE, PG::PQTRANS_UNKNOWN].include?(raw.transaction_status)
    rescue PG::QueryCanceled
      retry
    rescue PG::Error
      # Lost: there is nothing to roll back.
    ensure
      disconnect
    end

    private

    def begin_savepoint
      raw.exec("SAVEPOINT queue_jobs")
    end

    def release_savepoint
      raw.exec("RELEASE SAVEPOINT queue_jobs")
    end

    def roll_back_to_savepoint
      raw.exec("ROLLBACK TO SAVEPOINT queue_jobs")
    end

    def disconnect
      raw.close unless raw.finished?
    end
  end

  # Whether the connection cannot be used any more.
  def self.gone?(connection)
    connection.nil? || connection.finished? || connection.status != PG::CONNECTION_OK
  end

  # Whether the error is that of a lost connection, or of a server that shuts down.
  def self.lost?(connection, error)
    error = pg_error(error)
    return true if error.is_a?(PG::ConnectionBad) || error.is_a?(PG::UnableToSend) || sqlstate(error).start_with?("57P", "08")

    !connection.nil? && gone?(connection)
  end

  def self.sqlstate(error)
    pg_error(error)&.result&.error_field(PG::PG_DIAG_SQLSTATE).to_s
  end

  # ActiveRecord wraps it in errors of its own.
  def self.pg_error(error)
    [error, error&.cause].grep(PG::Error).first
  end
end
