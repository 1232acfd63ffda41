# What handlers do wrong: the job is charged, and the next one runs. Run by package.pl.
require_relative "help"

class Faults < Minitest::Test
  include Help

  # What an object answers to anything.
  class Rude < StandardError
    %i[message full_message to_s inspect backtrace].each { |name| define_method(name) { |*| raise "none" } }
  end

  ENDS_TRANSACTION = /does not begin or end the transaction/

  def self.cycle
    [].tap { |list| list << list }
  end

  # By what they are called: what the handler does, and the job's error.
  BAD = {
    "an error without a text" => [->(_job) { raise Rude }, /\AFaults::Rude, whose message cannot be made\z/],
    "an error in UTF-16" => [->(_job) { raise "half".encode("UTF-16LE") }, /\ARuntimeError: half\z/],
    "bytes" => [->(_job) { raise "a\xffb".b }, /\ARuntimeError: a\ufffdb\z/],
    "NUL" => [->(_job) { raise "a\0b" }, /\ARuntimeError: a\\0b\z/],
    "a long message" => [->(_job) { raise "long " * 1_000_000 }, /\ARuntimeError: (long ){300}/],
    "a class without a name" => [->(_job) { raise Class.new(StandardError), "odd" }, /odd\z/],
    "throw" => [->(_job) { throw :nobody }, /uncaught throw :nobody/],
    "Thread.exit" => [->(_job) { Thread.exit }, /ended its thread/],
    "kill" => [->(_job) { Thread.current.kill }, /ended its thread/],
    "exit" => [->(_job) { exit }, /SystemExit/],
    "an interrupt" => [->(_job) { raise Interrupt }, /Interrupt/],
    "too deep" => [->(job) { BAD["too deep"][0].call(job) }, /SystemStackError/],
    "another connection is lost" => [->(_job) { raise PG::ConnectionBad, "elsewhere" }, /elsewhere/],
    "an abandonment of its own" => [->(_job) { raise QueueJobs::Abandoned }, /Abandoned/],
    "retry_in misspelt" => [->(job) { job.retry_in("soon") && raise("first") }, /first.*"soon"/m],
    "retry_in too far" => [->(job) { job.retry_in(366 * 86_400) && raise("first") }, /first.*out of range/m],
    "retry_in NaN" => [->(job) { job.retry_in(Float::NAN) }, /NaN is no interval/],
    "retry_in of an object" => [->(job) { job.retry_in(Object.new) }, /Object is no interval/],
    "snooze misspelt" => [->(job) { job.snooze("soon") }, /"soon"/],
    "snooze for no time at all" => [->(_job) { raise QueueJobs::Snooze, nil }, /./],
    "a signal without a name" => [->(job) { job.wait_for_signal(nil) }, /./],
    "a timeout misspelt" => [->(job) { job.wait_for_signal("go", timeout: "soon") }, /"soon"/],
    "progress misspelt" => [->(job) { job.continue_at(1, progress: "far") }, /"far"/],
    "a cursor that is no JSON" => [->(job) { job.continue_at(Object.new) }, /as JSON/],
    "a reason without a text" => [->(job) { job.discard(Rude.new) }, /./],
    "NUL as result" => [->(_job) { "a\0" }, /Unicode/],
    "bytes as result" => [->(_job) { ["\xff"] }, /as JSON/],
    "NaN as result" => [->(_job) { { a: Float::NAN } }, /as JSON/],
    "a cycle as result" => [->(_job) { cycle }, /SystemStackError/]
  }.freeze

  BAD_TRANSACTIONS = {
    "COMMIT" => [->(job) { job.connection.exec("/* x */ COMMIT") }, ENDS_TRANSACTION],
    "a second statement" => [->(job) { job.connection.exec("SELECT 1; ROLLBACK") }, ENDS_TRANSACTION],
    "with parameters" => [->(job) { job.connection.exec_params("ROLLBACK", []) }, ENDS_TRANSACTION],
    "prepared" => [->(job) { job.connection.prepare("ends", "COMMIT") }, ENDS_TRANSACTION],
    "sent" => [->(job) { job.connection.send_query("COMMIT") }, ENDS_TRANSACTION],
    "sent with parameters" => [->(job) { job.connection.send_query_params("COMMIT", []) }, ENDS_TRANSACTION],
    "synchronous" => [->(job) { job.connection.sync_exec("COMMIT") }, ENDS_TRANSACTION],
    "transaction" => [->(job) { job.connection.transaction { raise "within" } }, ENDS_TRANSACTION],
    "its savepoint is gone" => [->(job) { job.connection.exec("RELEASE SAVEPOINT queue_jobs") && raise("released") }, /ended without its outcome/],
    "a ROLLBACK that passes by" => [->(job) { PG::Connection.instance_method(:async_exec).bind_call(job.connection, "ROLLBACK") }, /ended without its outcome/],
    "another transaction" => [->(job) { PG::Connection.instance_method(:async_exec).bind_call(job.connection, "ROLLBACK; BEGIN") }, /ended without its outcome/],
    "an error after COMMIT" => [->(job) { job.after_commit { exit } && raise("before it") }, /before it/]
  }.freeze

  def define(worker, retries = 0)
    sql("SELECT queue_jobs.define_worker($1, max_retries => $2, retry_backoff => 'public.at_once')", worker, retries.to_s)
  end

  def enqueue(worker, args = {})
    with_connection { |connection| QueueJobs.enqueue(connection, worker, args) }
  end

  def ended(id)
    sql("SELECT state, last_error, attempt FROM queue_jobs.job WHERE id = $1 AND state IN ('completed', 'dead')", id.to_s).first
  end

  def charged(mode, kinds)
    worker = QueueJobs::Worker.new(mode: mode)
    name = "#{mode} #{self.name}"
    define(name)
    runs = Queue.new
    worker.handle(name) do |job|
      runs << job.id
      kinds[job.args["kind"]]&.first&.call(job) || "good"
    end
    ids = kinds.keys.to_h { |kind| [kind, enqueue(name, { kind: kind })] }
    last = enqueue(name)
    work(worker) { ended(last) }
    assert_equal "completed", ended(last)[:state]
    kinds.each do |kind, (_, error)|
      row = ended(ids[kind])
      assert_equal ["dead", 1], [row&.fetch(:state), row&.fetch(:attempt)], kind
      assert_match error, row[:last_error], kind
    end
    assert_equal kinds.size + 1, runs.size
  end

  def test_charged_in_transaction_mode
    charged(:transaction, { **BAD, **BAD_TRANSACTIONS })
  end

  def test_charged_in_lease_mode
    charged(:lease, BAD)
  end

  # What a block returns by chance is no result, and an after_commit that ends its thread ends nothing.
  def test_no_results
    define(name)
    seen = Queue.new
    worker = QueueJobs::Worker.new
    worker.handle(name) do |job|
      job.after_commit { exit } if job.args["n"] == 1
      job.after_commit { seen << true }
      [Object.new, Float::NAN]
    end
    ids = [enqueue(name, { n: 1 }), enqueue(name, { n: 2 })]
    work(worker) { seen.size >= 2 && ids.all? { |id| ended(id) } }
    assert_equal [nil], sql("SELECT DISTINCT result FROM queue_jobs.job WHERE worker = $1", name).map { |row| row[:result] }
  end

  # Not even a failure can be written.
  def test_what_cannot_be_written_is_put_back
    script("DROP ROLE IF EXISTS ruby_claims; CREATE ROLE ruby_claims LOGIN IN ROLE queue_jobs_claim, queue_jobs_enqueue; REVOKE EXECUTE ON FUNCTION queue_jobs.fail FROM queue_jobs_claim")
    %i[transaction lease].each do |mode|
      name = "#{mode} #{self.name}"
      define(name)
      worker = QueueJobs::Worker.new("user=ruby_claims", mode: mode)
      worker.handle(name) { |job| raise "first" if job.args["fails"] }
      connection = PG.connect(user: "ruby_claims")
      ids = [{ fails: true }, {}].map { |args| QueueJobs.enqueue(connection, name, args) }
      connection.close
      work(worker) { ended(ids[1]) && sql("SELECT FROM queue_jobs.job WHERE id = $1 AND state = 'scheduled' AND errors IS NULL", ids[0].to_s).any? }
    end
  ensure
    script("GRANT EXECUTE ON FUNCTION queue_jobs.fail TO queue_jobs_claim")
  end

  ENDING = ["BEGIN", " begin", "START  TRANSACTION", "start/* */transaction", "COMMIT", "End", "abort", "ROLLBACK", "rollback work", "ROLLBACK AND CHAIN", "prepare transaction 'a'",
            "commit prepared 'a'", "/* x */ COMMIT", "/* /* x */ */ -- y\n commit", ";;commit", "SELECT 1; COMMIT", %q(SELECT ';', $$;$$, $a$ $$ $a$, E'\\\\', ";"; ROLLBACK),
            "SELECT 'it''s'; END", "SELECT 'a\\'; COMMIT", "SELECT $1; COMMIT", "SELECT a$1$; COMMIT; SELECT b$1$"].freeze
  OTHERS = ["SELECT 1", "SAVEPOINT commit", "ROLLBACK TO a", "rollback work to savepoint a", "ROLLBACK /* */ TRANSACTION TO a", "RELEASE a", "SELECT 'x; COMMIT'", "-- ; COMMIT",
            "/* ; */ SELECT 1 /* ; COMMIT", "DO $$ BEGIN NULL; COMMIT; END $$", "SELECT E'\\'; COMMIT'", "SELECT E'a''\\'; COMMIT'", 'SELECT ";COMMIT"', "SELECT 1; committed",
            "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 2 END; END", "PREPARE a AS SELECT 1", "SELECT 1 AS end", "SELECT $a$; COMMIT; $b$ $a$", "", nil, "\xff; "].freeze

  def test_guard
    ENDING.each { |sql| assert QueueJobs::Guard.ends_transaction?(sql), sql }
    OTHERS.each { |sql| refute QueueJobs::Guard.ends_transaction?(sql), sql }
  end

  # As long as the text is: else these would take hours.
  def test_patterns_are_linear
    ["-- \n", "/*", "'", "$a", "E'\\", " ", "begin ", "a", "a$", "a'", "''"].each { |text| QueueJobs::Guard.ends_transaction?("SELECT commit; #{text * 100_000}") }
  end
end
