require "queue_jobs"
require "active_record"

module QueueJobs
  # A session on ActiveRecord's connection. ActiveRecord begins and ends the transactions, so it knows of
  # them: what a handler writes by its models belongs to them, transaction(requires_new: true) makes a
  # savepoint, and after_commit waits for the commit of the run.
  class RecordSession < Session
    attr_reader :connection

    def initialize(connection)
      super(connection.raw_connection)
      @connection = connection
    end

    # raw_connection says that statements go by ActiveRecord: in a rollback of what is nested, it would begin
    # a transaction again in which it has seen none.
    def begin
      connection.begin_transaction
      connection.raw_connection
    end

    def commit
      connection.commit_transaction
    end

    def rollback
      connection.rollback_transaction
    end

    private

    # A transaction within a transaction is a savepoint.
    alias begin_savepoint begin
    alias release_savepoint commit
    alias roll_back_to_savepoint rollback

    def disconnect
      connection.pool.remove(connection)
      connection.disconnect!
    end
  end

  # A Worker whose handlers use ActiveRecord. In transaction mode job.connection is the connection that
  # ActiveRecord has for the thread.
  class RecordWorker < Worker
    def initialize(record_class: ActiveRecord::Base, **options)
      @record_class = record_class
      super(connect: -> { connect_beside_the_pool }, **options)
      use { |_job, call_next| release_after(&call_next) }
    end

    def run
      size = pool.size
      if mode == :transaction && size < concurrency
        raise ArgumentError, "each of #{concurrency} threads needs a connection, and the pool of #{@record_class} has #{size}: see pool in config/database.yml"
      end

      super
    end

    def with_session
      pool.with_connection do |connection|
        # ActiveRecord's own setting keeps notices from being sent.
        prepared(connection.raw_connection, { "client_min_messages" => "notice" })
        session = RecordSession.new(connection)
        yield session
      ensure
        session&.close
      end
    end

    private

    def pool
      @record_class.connection_pool
    end

    # In lease mode a handler's connection goes back to the pool after each job.
    def release_after
      yield
    ensure
      pool.release_connection if mode == :lease
    end

    # As ActiveRecord itself connects.
    def connect_beside_the_pool
      config = @record_class.connection_db_config.configuration_hash
      config = { user: config[:username], dbname: config[:database], **config }
      QueueJobs.connect(config.slice(*PG::Connection.conndefaults_hash.keys).compact)
    end
  end
end
