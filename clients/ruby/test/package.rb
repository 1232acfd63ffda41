# What is the Ruby client's own: connections, the context of a job, how runs end, the helper for tests, the
# command. Run by package.pl.
require_relative "help"
require "queue_jobs/command"

# Workers with the test's name, so that no test meets another's jobs.
class Case < Minitest::Test
  include Help
  include QueueJobs::Testing

  def setup
    sql("SELECT queue_jobs.define_worker($1, max_retries => 3, retry_backoff => 'public.at_once')", name)
  end

  def jobs(columns = "args")
    sql("SELECT #{columns} FROM queue_jobs.job WHERE worker = $1 ORDER BY id", name).map(&:values)
  end

  def finished?(count = 1)
    jobs("state").count { |(state)| %w[completed dead].include?(state) } == count
  end
end

class Enqueue < Case
  def test_in_the_callers_transaction
    with_connection do |connection|
      # Settings of the application's that must not matter.
      connection.type_map_for_queries = PG::BasicTypeMapForQueries.new(connection)
      connection.type_map_for_results = PG::BasicTypeMapForResults.new(connection)
      connection.exec("BEGIN")
      assert_kind_of Integer, QueueJobs.enqueue(connection, name, { n: 0 })
      connection.exec("ROLLBACK; BEGIN")
      one = QueueJobs.enqueue(connection, name, { n: 1, text: "ö % $1" }, delay: 300)
      many = QueueJobs.enqueue_many(connection, name, [{ n: 2 }, { "n" => 3 }], priority: 7, priorities: [7, nil], tags: ["a", "b c"], max_retries: 2, run_ats: [nil, Time.new(2001, 1, 1, 0, 0, 0, "+00:00")])
      token = QueueJobs.enqueue(connection, name, { n: 4 }, dedup_key: "token", tags: %w[own], max_retries: 0, timeout: 60, keep_completed: "1 day")
      QueueJobs.enqueue(connection, name, { n: 6 }, run_at: Time.new(2100, 1, 1, 0, 0, 0, "+00:00"))
      assert_nil QueueJobs.try_enqueue(connection, name, { n: 5 }, dedup_key: "token")
      latest = QueueJobs.enqueue(connection, name, { n: 7 }, dedup_key: "latest", if_waiting: "debounce", delay: 7200, max_delay: 3600)
      assert_equal latest, QueueJobs.enqueue(connection, name, { n: 8 }, dedup_key: "latest", if_waiting: "replace_args")
      assert_empty QueueJobs.enqueue_many(connection, name, [])
      assert_enqueued connection, name, { n: 1 }
      connection.exec("COMMIT")
      assert_equal [[one, 1, 0], [many[0], 2, 7], [many[1], 3, 7], [token, 4, 0]], jobs("id, (args ->> 'n')::int, priority").first(4)
      assert_equal [["{a,\"b c\"}", 3], ["{a,\"b c\"}", 3], ["{own}", 1]], jobs("tags::text, max_attempts")[1, 3]
      assert_equal [[Time.new(2100, 1, 1, 0, 0, 0, "+00:00")]], jobs("run_at")[4, 1]
      assert_equal [[latest, 8, 3600]], jobs("id, (args ->> 'n')::int, round(extract(epoch FROM run_at - created_at))::bigint").last(1)
    end
  end

  def test_refused_in_the_words_of_the_server
    refused = { "if_waiting must be" => { if_waiting: "last", dedup_key: "a" }, "needs a delay" => { if_waiting: "debounce", dedup_key: "a" }, "max_delay needs" => { max_delay: 1 } }
    refused.each do |message, options|
      with_connection do |connection|
        assert_match(/#{message}/, assert_raises(PG::InvalidParameterValue) { QueueJobs.enqueue(connection, name, {}, **options) }.message)
      end
    end
  end

  def test_batches_and_workflows
    in_test_transaction do |connection|
      batch = QueueJobs.new_batch(connection, "import", on_success: name, args: { import: 7 }, open: true)
      QueueJobs.enqueue(connection, name, { n: 1 }, batch: batch)
      QueueJobs.close_batch(connection, batch)
      steps = [{ step: "load", worker: name, delay: 60 }, { "step" => "report", "worker" => name, "after" => ["load"], "args" => { n: 2 } }]
      load_step, report = QueueJobs.enqueue_workflow(connection, "nightly", steps)
      assert_equal [%w[load report], %w[scheduled waiting]], [[load_step.step, report.step], enqueued(connection, name).last(2).map { |job| job[:state] }]
      later = QueueJobs.enqueue(connection, name, after: [load_step.job, report.job], if_dead: "run")
      assert QueueJobs.signal(connection, later, "paid", { "amount" => nil })
      refute QueueJobs.signal(connection, later, "paid")
      worker = QueueJobs::Worker.new
      worker.handle(name) { |job| job.batch_results.map { |row| row.values_at(:args, :result) } }
      assert_equal [[[{ "n" => 1 }, nil]]], run_due(connection, worker).map(&:result)
    end
  end

  def test_refused
    in_test_transaction do |connection|
      assert_match(/prioriti.*priority/, assert_raises(ArgumentError) { QueueJobs.enqueue(connection, name, {}, prioriti: 1) }.message)
      [Time.now, Float::NAN, Object.new, "\xff", { 1.5 => 1 }].each { |value| assert_raises(TypeError) { QueueJobs.enqueue(connection, name, { n: [value] }) } }
      assert_raises(TypeError) { QueueJobs.enqueue(connection, name, {}, run_at: Date.new(2100, 1, 1)) }
      assert_raises(PG::UndefinedObject) { QueueJobs.enqueue(connection, "no such worker") }
    end
  end

  def test_traces
    # What we use of OpenTelemetry.
    Object.const_set(:OpenTelemetry, Module.new { def self.propagation = Class.new { def self.inject(carrier) = carrier["traceparent"] = "00-1-2-01" } })
    in_test_transaction do |connection|
      QueueJobs.enqueue(connection, name, {}, context: { tenant: "ö" })
      QueueJobs.enqueue_many(connection, name, [{}])
      assert_equal [{ "tenant" => "ö", "traceparent" => "00-1-2-01" }, { "traceparent" => "00-1-2-01" }],
                   QueueJobs::Statement.fetch(connection, "SELECT context FROM queue_jobs.job WHERE worker = $1 ORDER BY id", [name]).map { |row| row[:context] }
    end
    # A workflow's context is the session's, which is the same afterwards.
    with_connection do |connection|
      connection.exec(%(SET queue_jobs.context = '{"user": 1}'))
      2.times do |n|
        QueueJobs.enqueue_workflow(connection, "nightly", [{ step: "one", worker: name }], context: n.zero? ? { tenant: "ö" } : nil)
        assert_equal '{"user": 1}', connection.exec("SELECT current_setting('queue_jobs.context')").getvalue(0, 0)
      end
    end
    assert_equal [{ "user" => 1, "tenant" => "ö", "traceparent" => "00-1-2-01" }, { "user" => 1, "traceparent" => "00-1-2-01" }], jobs("context").flatten
  ensure
    Object.send(:remove_const, :OpenTelemetry)
  end
end

class Handlers < Case
  def logged
    lines = StringIO.new
    before = QueueJobs.logger
    QueueJobs.logger = Logger.new(lines, formatter: QueueJobs::JsonLines.new)
    yield lines
    lines.string.lines.map { |line| JSON.parse(line, symbolize_names: true) }
  ensure
    QueueJobs.logger = before
  end

  def test_middleware_and_logged_lines
    calls = []
    worker = QueueJobs::Worker.new
    worker.use do |_job, call_next|
      calls << "outer"
      { outer: call_next.call }
    end
    inner = Object.new
    inner.define_singleton_method(:call) do |job, &block|
      calls << "inner of #{job.id}"
      block.call
    end
    worker.use(inner)
    worker.handle(name) do |job|
      calls << "handler of #{QueueJobs.current_job.id}"
      job.args["n"]
    end
    id = with_connection { |connection| QueueJobs.enqueue(connection, name, { n: 1 }, context: { traceparent: "00-1-2-01" }) }
    # The line comes after the job's COMMIT.
    events = logged { |lines| work(worker) { lines.string.include?('"event":"completed"') } }
    assert_equal ["outer", "inner of #{id}", "handler of #{id}"], calls
    assert_equal [[{ "outer" => 1 }]], jobs("result")
    assert_equal %w[started completed stopping stopped], events.map { |line| line[:event] }
    assert_equal [id, "00-1-2-01"], events[1].values_at(:job, :traceparent)
  end

  def test_retry_in_discard_and_no_handler
    %i[transaction lease].each do |mode|
      worker = QueueJobs::Worker.new(mode: mode, queues: [mode.to_s])
      worker.handle(name) do |job|
        job.discard("no use") if job.args["n"].zero?
        job.retry_in("1 hour")
        raise ArgumentError, "later"
      rescue StandardError
        raise # a handler's own rescue does not see what ends the run
      end
      script("SELECT queue_jobs.define_worker('another''s')")
      ids = with_connection { |connection| [[name, 0], [name, 1], ["another's", 2]].map { |one, n| QueueJobs.enqueue(connection, one, { n: n }, queue: mode.to_s) } }
      find = "SELECT state::text, last_error, coalesce(finished_at, run_at) > now() + '50 min' AS late FROM queue_jobs.job WHERE id = ANY ($1) AND state IN ('dead', 'retryable', 'scheduled') ORDER BY id"
      events = logged { work(worker) { sql(find, "{#{ids.join(",")}}").size == 3 } }
      assert_equal [["dead", "no use", false], ["retryable", "ArgumentError: later", true], ["scheduled", nil, false]], sql(find, "{#{ids.join(",")}}").map(&:values)
      assert_includes events.map { |line| line[:event] }, "no_handler"
    end
  end

  def test_what_fails_goes_back
    script("CREATE TABLE written (n int PRIMARY KEY, other int REFERENCES written DEFERRABLE INITIALLY DEFERRED)")
    sql("SELECT queue_jobs.define_worker($1, max_retries => 0)", name)
    worker = QueueJobs::Worker.new(concurrency: 2)
    worker.handle(name) do |job|
      written = job.connection.exec_params("INSERT INTO written VALUES ($1, $2)", job.args.values_at("n", "other"))
      job.connection.exec("SELECT 1 / 0") if job.args["n"] == 2
      next "\0" if job.args["n"] == 3

      exit if job.args["n"] == 7
      written
    end
    with_connection { |connection| QueueJobs.enqueue_many(connection, name, [{ n: 1 }, { n: 2 }, { n: 3 }, { n: 4, other: 5 }, { n: 6 }, { n: 7 }]) }
    work(worker) { finished?(6) }
    assert_equal [1, 6], sql("SELECT n FROM written ORDER BY n").map { |row| row[:n] }
    assert_equal [nil, "PG::DivisionByZero", "PG::UntranslatableCharacter", "PG::ForeignKeyViolation", nil, "SystemExit"], jobs("split_part(last_error, ': ', 1) AS error").flatten
    assert_equal [nil], jobs("result").first # a PG::Result is none
  end

  # A batch's callback has its results, a step those before it, in the context of what enqueued the workflow.
  def test_workflow
    %i[transaction lease].each do |mode|
      worker = QueueJobs::Worker.new(mode: mode, queues: [mode.to_s])
      seen = Queue.new
      steps = { "a" => [], "b" => [], "sum" => %w[a b] }.map { |step, after| { step: step, worker: name, args: { step: step }, after: after, queue: mode.to_s } }
      worker.handle(name) do |job|
        with_connection { |connection| QueueJobs.enqueue_workflow(connection, "nightly", steps) } if job.args["start"]
        seen << [job.results, job.context, job.batch_results.filter_map { |row| row[:step] if row[:result] }] if job.args["step"] == "sum"
        job.args["step"]
      end
      with_connection { |connection| QueueJobs.enqueue(connection, name, { start: true }, queue: mode.to_s, context: { tenant: mode }) }
      work(worker) { !seen.empty? }
      assert_equal [{ "a" => "a", "b" => "b" }, { "tenant" => mode.to_s }, %w[a b]], seen.pop
    end
  end

  def test_signal
    %i[transaction lease].each do |mode|
      worker = QueueJobs::Worker.new(mode: mode, queues: [mode.to_s])
      worker.handle(name) { |job| [job.signal(job.args["to"], "go", { by: job.id }), job.signal(job.args["to"], "go"), job.enqueue_many(name, [{}, {}], delay: "1 day").size] }
      to = with_connection { |connection| QueueJobs.enqueue(connection, name, {}, delay: "1 hour") }
      id = with_connection { |connection| QueueJobs.enqueue(connection, name, { to: to }, queue: mode.to_s) }
      work(worker) { !sql("SELECT id FROM queue_jobs.job WHERE id = $1 AND state = 'completed'", id).empty? }
      assert_equal [true, false, 2], sql("SELECT result FROM queue_jobs.job WHERE id = $1", id).first[:result]
      assert_equal [{ payload: { "by" => id } }], sql("SELECT payload FROM queue_jobs.job_signal WHERE job = $1", to)
    end
  end

  def test_after_commit
    seen = Queue.new
    worker = QueueJobs::Worker.new
    worker.handle(name) { |job| job.after_commit { seen << sql("SELECT state::text FROM queue_jobs.job WHERE id = $1", job.id).first[:state] } }
    with_connection { |connection| QueueJobs.enqueue(connection, name) }
    work(worker) { !seen.empty? }
    assert_equal "completed", seen.pop
  end

  # Its neighbours are charged once at most, since it is run alone from then on.
  def test_a_job_that_takes_its_process_along_takes_no_other
    script("SELECT queue_jobs.define_worker('poison')")
    with_connection do |connection|
      QueueJobs.enqueue_many(connection, name, [{}] * 3)
      QueueJobs.enqueue(connection, "poison")
      QueueJobs.enqueue_many(connection, name, [{}] * 3)
    end
    nil until system(File.join(HERE, "poison"), name)
    assert_equal ["dead"], sql("SELECT state::text FROM queue_jobs.job WHERE worker = 'poison'").map { |row| row[:state] }
    assert_equal ["completed"] * 6, jobs("state").flatten
  end

  # A handler that is in Ruby, not in a statement, when the time to stop is over.
  def test_what_does_not_end_is_given_back
    %i[transaction lease].each do |mode|
      begun = Queue.new
      ensured = Queue.new
      worker = QueueJobs::Worker.new(mode: mode, queues: [mode.to_s], concurrency: 2, grace: 0.1)
      worker.handle(name) do
        begun << true
        sleep
      ensure
        ensured << true
      end
      with_connection { |connection| 2.times { QueueJobs.enqueue(connection, name, {}, queue: mode.to_s) } }
      work(worker) { begun.size == 2 }
      assert_equal 2, ensured.size
    end
    assert_equal [["available", nil]] * 4, jobs("state, errors")
  end
end

class Helper < Case
  def test_run_due
    worker = QueueJobs::Worker.new
    worker.handle(name) do |job|
      n = job.args["n"]
      job.enqueue(name, { n: n - 1 }) if n > 2
      if n == 1
        job.retry_in("1 hour")
        raise "one"
      end
      job.step("once") { n } && !job.connection.nil?
    end
    in_test_transaction do |connection|
      QueueJobs.enqueue(connection, name, { n: 4 })
      QueueJobs.enqueue(connection, name, { n: 5 }, delay: "1 hour")
      ran = run_due(connection, worker)
      assert_equal [[4, "completed", true], [3, "completed", true], [2, "completed", true]], ran.map { |one| [one.job.args["n"], one.event, one.result] }
      QueueJobs.enqueue(connection, name, { n: 1 })
      assert_equal "one", assert_raises(RuntimeError) { run_due(connection, worker) }.message
    end
    in_test_transaction do |connection|
      QueueJobs.enqueue(connection, name, { n: 1 })
      ran = run_due(connection, worker, raise_errors: false)
      assert_equal [%w[failed one]], ran.map { |one| [one.event, one.error.message] }
      assert_equal ["retryable"], enqueued(connection, name).map { |job| job[:state] }
    end
    assert_empty jobs
  end

  def test_run_due_with_a_signal
    worker = QueueJobs::Worker.new
    worker.handle(name) do |job|
      job.wait_for_signal(:go, timeout: 3600) unless job.signals.key?("go")
      [job.signal_payload(:go), job.signal_payload("another")]
    end
    in_test_transaction do |connection|
      QueueJobs.enqueue(connection, name)
      assert_equal [["waiting", nil]], run_due(connection, worker).map { |one| [one.event, one.result] }
      assert_equal ["waiting"], enqueued(connection, name).map { |job| job[:state] }
      assert_empty run_due(connection, worker)
      [{ "by" => "ö" }, nil].each do |payload|
        QueueJobs.signal(connection, QueueJobs.enqueue(connection, name), "go", payload)
        assert_equal [["completed", [payload, nil]]], run_due(connection, worker).map { |one| [one.event, one.result] }
      end
    end
  end

  def test_assert_enqueued
    in_test_transaction do |connection|
      QueueJobs.enqueue(connection, name, { n: 1, m: 2 })
      assert_enqueued connection, name, { n: 1 }, count: 1
      assert_equal({ "n" => 1, "m" => 2 }, enqueued(connection, name).first[:args])
      assert_match(/"m"=>2/, assert_raises(Minitest::Assertion) { assert_enqueued(connection, name, { n: 2 }) }.message)
    end
  end
end

class Documents < Case
  def test_readme
    script(blocks("clients/ruby/README.md", "sql").join)
    jobs, application = blocks("clients/ruby/README.md", "ruby")
    Dir.mktmpdir do |folder|
      File.write(File.join(folder, "jobs.rb"), jobs)
      eval(application, TOPLEVEL_BINDING.dup) # rubocop:disable Security/Eval
      command(folder, "jobs.rb", "--concurrency", "4") { wait_until { sql("SELECT mail_id FROM delivery") == [{ mail_id: 13 }] } }
    end
    assert_equal [{ result: { "status" => 250 } }], sql("SELECT result FROM queue_jobs.job WHERE worker = 'deliver'")
  end

  def test_how_to
    script(blocks("docs/how-to/ruby.md", "sql").join)
    *examples, tests = blocks("docs/how-to/ruby.md", "ruby")
    scope = TOPLEVEL_BINDING.dup
    capture_io do
      examples.each { |example| eval(example, scope) } # rubocop:disable Security/Eval
      unfinished = "SELECT id FROM queue_jobs.job WHERE worker IN ('charge', 'import', 'report') AND state NOT IN ('completed', 'dead')"
      work(Object.const_get(:WORKER)) { sql(unfinished).empty? }
      eval(tests, scope) # rubocop:disable Security/Eval
    end
    assert_equal [[1, 10], [2, 20]], sql("SELECT order_id, amount::int FROM charge ORDER BY 1").map(&:values)
    ended = "SELECT worker, count(*) FILTER (WHERE state = 'completed') AS completed, count(*) FILTER (WHERE state = 'dead') AS dead FROM queue_jobs.job WHERE worker IN ('charge', 'import', 'report') GROUP BY 1 ORDER BY 1"
    assert_equal [["charge", 2, 0], ["import", 1, 0], ["report", 2, 1]], sql(ended).map(&:values)
  end
end

class CommandLine < Case
  def test_file
    sql("SELECT queue_jobs.enqueue($1)", name)
    lines = command(HERE, "command.rb", "--concurrency", "2", "--mode", "lease", WORKER: name) { wait_until { finished? } }
    assert_equal ["lease", 2, ["worker=#{name}"]], lines.first.values_at(:mode, :concurrency, :queues)
    assert_equal [[1]], jobs("result")
  end

  def test_lists_of_queues
    command = QueueJobs::Command.new(["#{HERE}/command.rb"])
    assert_equal %w[mail sms shop:* urgency=high&tags=mail,index], command.send(:queue_list, "mail,sms shop:* urgency=high&tags=mail,index")
  end

  def test_refused
    { "" => 2, "--concurrency 0 #{HERE}/command.rb" => 2, "--concurrency x #{HERE}/command.rb" => 2, "--no-such #{HERE}/command.rb" => 2, "#{HERE}/help.rb" => 1, "--help" => 0 }.each do |arguments, expected|
      said, status = Open3.capture2e({ "WORKER" => "w" }, "#{RbConfig.ruby} -I#{HERE}/../lib #{HERE}/../exe/queue_jobs #{arguments}")
      assert_equal [expected, false], [status.exitstatus, said.include?("(OptionParser")], said
    end
  end
end

# Built and installed, it is found without -I.
class Gems < Case
  def test_gem
    Dir.mktmpdir do |folder|
      gem = File.join(folder, "queue_jobs.gem")
      environment = { "GEM_HOME" => folder, "GEM_PATH" => [folder, *Gem.path].join(":"), "RUBYOPT" => nil, "RUBYLIB" => nil }
      said, status = Open3.capture2e(environment, "gem build -o #{gem} queue_jobs.gemspec && gem install --local --no-document --ignore-dependencies #{gem} && #{folder}/bin/queue_jobs --help", chdir: "#{HERE}/..")
      assert status.success?, said
      assert_includes said, "--concurrency"
    end
  end
end
