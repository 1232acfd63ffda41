require "pg"
require "timeout"
require "queue_jobs/guard"

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
      @set_role = set_role
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

    # Raises the errors that would come at the commit, and gives the session back the role that it had at first,
    # whichever a handler has set.
    def end_work
      raw.exec("SET CONSTRAINTS ALL IMMEDIATE; #{@set_role}")
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

    # Set for a transaction alone, user and role would give way to the handler's after it.
    def set_role
      own = Statement.fetch(raw, "SELECT session_user::text AS session_authorization, pg_catalog.current_setting('role') AS role").first
      "SELECT #{own.map { |name, value| "pg_catalog.set_config('#{name}', #{raw.escape_literal(value)}, false)" }.join(", ")}"
    end

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

  KEEPALIVES = { keepalives_idle: 30, keepalives_interval: 10, keepalives_count: 3, tcp_user_timeout: 60_000 }.freeze
  CONNECT_WITHIN = 10
  CANCEL_WITHIN = 5

  # Connects as PG.connect does, with limits for a server that is not there.
  def self.connect(conninfo)
    given = conninfo.is_a?(Hash) ? conninfo : PG::Connection.conninfo_parse(conninfo.to_s).to_h { |option| [option[:keyword].to_sym, option[:val]] }.compact
    limits = ENV["PGCONNECT_TIMEOUT"] ? KEEPALIVES : { connect_timeout: CONNECT_WITHIN, **KEEPALIVES }
    PG.connect(limits.merge(given))
  end

  # Makes a connection ready for a worker, whatever settings the role and the database have: it answers in time,
  # logs what the server notices, speaks UTF-8 and writes dates as pg reads them.
  def self.prepare(raw, silence, settings = {})
    raw.extend(WorkersConnection)
    raw.silence = silence
    before = raw.set_notice_receiver { |result| log_notice(result, before) }
    raw.set_client_encoding("UTF8")
    settings = { "DateStyle" => "ISO", **settings }
    Statement.fetch(raw, "SELECT #{settings.map { |name, value| "set_config('#{name}', '#{value}', false)" }.join(", ")}")
    raw
  end

  NOTICE = { severity: PG::PG_DIAG_SEVERITY_NONLOCALIZED, message: PG::PG_DIAG_MESSAGE_PRIMARY, sqlstate: PG::PG_DIAG_SQLSTATE, detail: PG::PG_DIAG_MESSAGE_DETAIL, hint: PG::PG_DIAG_MESSAGE_HINT }.freeze

  def self.log_notice(result, before)
    level = { "WARNING" => Logger::WARN, "DEBUG" => Logger::DEBUG }.fetch(result.error_field(PG::PG_DIAG_SEVERITY_NONLOCALIZED), Logger::INFO)
    log(level, "notice", **NOTICE.transform_values { |field| result.error_field(field) })
    before&.call(result)
  end

  # Has the server end the statement that the connection waits for. Returns what is wrong if it cannot be asked.
  def self.cancel(raw)
    Timeout.timeout(CANCEL_WITHIN) { raw.cancel }
  rescue Timeout::Error, PG::Error => e
    e.message
  end

  # Whether the connection cannot be used any more.
  def self.gone?(connection)
    connection.nil? || connection.finished? || connection.status != PG::CONNECTION_OK
  end

  # By SQLSTATE, the settings that end a session whose handler keeps its transaction idle, or open.
  TIMEOUTS = { "25P03" => "idle_in_transaction_session_timeout", "25P04" => "transaction_timeout" }.freeze
  TIMEOUT_TEXTS = { "due to idle-in-transaction timeout" => "25P03", "due to transaction timeout" => "25P04" }.freeze

  # The setting that has ended the session, if one has: the error, or one that it has followed, says so.
  def self.timeout(error)
    5.times do
      text = error.is_a?(PG::Error) ? Values.said(1000) { error.message }.to_s : ""
      found = TIMEOUTS[TIMEOUT_TEXTS.find { |part, _| text.include?(part) }&.last || sqlstate(error)]
      return found if found

      error = error&.cause
    end
    nil
  end

  # Rights, names, values, features: the server would say the same the next time. libpq has no SQLSTATE of what
  # is said before there is a session.
  HOPELESS = %w[0A 22 28 3D 3F 42].freeze
  HOPELESS_TEXTS = ['" does not exist', "authentication failed for user", "no password supplied", "no pg_hba.conf entry", "pg_hba.conf rejects", "is not permitted to log in",
                    "permission denied for database", "invalid integer value", "invalid port number", ' value: "'].freeze

  def self.hopeless?(error)
    state = sqlstate(error)
    return state.start_with?(*HOPELESS) unless state.empty?

    text = Values.said(2000) { pg_error(error)&.message }.to_s
    HOPELESS_TEXTS.any? { |part| text.include?(part) }
  end

  # Conflicts, resources, operators, internal errors: no fault of what was to be written.
  def self.may_pass?(error)
    sqlstate(error).start_with?("40", "53", "55P03", "57", "58", "XX")
  end

  # Whether the error is that of a lost connection, or of a server that shuts down.
  def self.lost?(connection, error)
    error = pg_error(error)
    return true if error.is_a?(PG::ConnectionBad) || error.is_a?(PG::UnableToSend) || sqlstate(error).start_with?("57P", "08", *TIMEOUTS.keys)

    !connection.nil? && gone?(connection)
  end

  def self.sqlstate(error)
    pg_error(error)&.result&.error_field(PG::PG_DIAG_SQLSTATE).to_s
  rescue PG::Error
    "" # the result is cleared
  end

  # For the log: nil if there is none.
  def self.said_sqlstate(error)
    state = sqlstate(error)
    state unless state.empty?
  end

  # ActiveRecord wraps it in errors of its own.
  def self.pg_error(error)
    [error, error&.cause].grep(PG::Error).first
  end
end
