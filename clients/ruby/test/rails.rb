# The adapter of ActiveJob, with an application that is rails_project. Run by rails.pl.
require_relative "rails_project/config/environment"
require_relative "help"

class RailsCase < Minitest::Test
  include Help
  include QueueJobs::Testing

  PROJECT = File.join(HERE, "rails_project")

  def setup
    self.class.prepare
    Order.delete_all
  end

  def self.prepare
    @@prepared ||= begin
      ActiveRecord::Migration.verbose = false
      ActiveRecord::Migration.create_table(:orders) do |table|
        table.integer :number, null: false, index: { unique: true }
        table.boolean :told
      end
      ActiveRecord::Base.connection.execute("SELECT queue_jobs.define_worker('active_job', retry_backoff => 'public.at_once')")
    end
  end

  def in_transaction
    Order.transaction do
      yield Order.connection
      raise ActiveRecord::Rollback
    end
  end

  # Runs the command until the orders are these.
  def until_orders(numbers, *arguments, &block)
    command(PROJECT, "--rails", *arguments) do
      block&.call
      wait_until { Order.order(:number).pluck(:number) == numbers && unfinished.zero? }
    end
  end

  def unfinished
    sql("SELECT count(*) FROM queue_jobs.job WHERE state NOT IN ('completed', 'dead', 'cancelled')").first[:count]
  end
end

class Adapter < RailsCase
  def test_enqueue_belongs_to_the_transaction
    at = Time.now + 3600
    in_transaction do |connection|
      job = BookJob.set(wait_until: at).perform_later(1)
      assert_kind_of Integer, job.provider_job_id
      found = enqueued(connection, "active_job", { job_class: "BookJob" }).last
      assert_equal [job.provider_job_id, "orders", 3, "scheduled"], found.values_at(:id, :queue, :priority, :state)
      assert_in_delta at.to_f, found[:run_at].to_f, 1e-3
    end
    assert_equal 0, unfinished
  end

  def test_run_due
    in_transaction do |connection|
      order = Order.create!(number: 1)
      BookJob.perform_later(2)
      TellJob.perform_later(order)
      ran = run_due(connection, QueueJobs.active_job_worker)
      assert_equal %w[completed completed], ran.map(&:event)
      assert_equal [[1, true], [2, nil]], Order.order(:number).pluck(:number, :told)
      assert connection.transaction_open?
    end
    assert_equal 0, Order.count
  end

  def test_enqueue_all
    skip "this ActiveJob has no perform_all_later" unless ActiveJob.respond_to?(:perform_all_later)
    in_transaction do |connection|
      jobs = [BookJob.new(1), CountJob.new(2).set(wait: 60), BookJob.new(3).set(priority: -1, queue: "quick")]
      ActiveJob.perform_all_later(jobs)
      assert jobs.all?(&:successfully_enqueued?)
      found = jobs.map { |job| enqueued(connection, "active_job", { job_id: job.job_id }).first }
      assert_equal [["orders", 3, "available"], ["default", 0, "scheduled"], ["quick", -1, "available"]], found.map { |row| row.values_at(:queue, :priority, :state) }
      assert_equal jobs.map(&:provider_job_id), found.map { |row| row[:id] }
    end
  end

  def test_options
    in_transaction do |connection|
      first = IndexJob.perform_later(1, "old")
      assert_equal first.provider_job_id, IndexJob.perform_later(1, "new").provider_job_id
      own = IndexJob.set(wait: 7200, if_waiting: "debounce", max_delay: 3600, dedup_key: "own", tags: %w[a b]).perform_later(2)
      found = QueueJobs::Statement.fetch(connection, "SELECT id, args -> 'arguments' AS arguments, tags::text, max_attempts, round(extract(epoch FROM run_at - created_at))::int AS delay FROM queue_jobs.job WHERE tags IS NOT NULL ORDER BY id")
      assert_equal [[first.provider_job_id, "{search}", 1, 0], [own.provider_job_id, "{a,b}", 1, 3600]], found.map { |row| row.values_at(:id, :tags, :max_attempts, :delay) }
      assert_match(/new/, found.first[:arguments].to_s)
      next unless ActiveJob.respond_to?(:perform_all_later)

      jobs = [BookJob.new(4), IndexJob.new(4).set(timeout: 60), IndexJob.new(5)]
      ActiveJob.perform_all_later(jobs)
      assert jobs.all?(&:successfully_enqueued?)
      assert_equal ["index 4", "index 5"], QueueJobs::Statement.fetch(connection, "SELECT dedup_key FROM queue_jobs.job WHERE dedup_key ~ 'index [45]' ORDER BY 1").map { |row| row[:dedup_key] }
    end
    assert_match(/no option wait; it has dedup_key/, assert_raises(ArgumentError) { Class.new(ActiveJob::Base) { queue_with_options wait: 1 } }.message)
  end

  def test_enqueue_all_with_options
    skip "this ActiveJob has no perform_all_later" unless ActiveJob.respond_to?(:perform_all_later)
    in_transaction do |connection|
      connection.execute("SELECT queue_jobs.disable_worker('active_job')")
      jobs = [BookJob.new(1), IndexJob.new(2)]
      ActiveJob.perform_all_later(jobs)
      assert_equal [false, false], jobs.map(&:successfully_enqueued?)
    end
    jobs = [BookJob.new(1), IndexJob.new(2), IndexJob.new(3).set(if_waiting: "last")]
    assert_match(/if_waiting must be/, assert_raises(PG::InvalidParameterValue) { ActiveJob.perform_all_later(jobs) }.message)
    assert_equal 0, unfinished
  end

  # Rails 7.2 would wait for the commit, unless the adapter says otherwise.
  def test_after_transaction_commit
    refute ActiveJob::Base.queue_adapter.enqueue_after_transaction_commit?
    refute ActiveJob::Base.queue_adapter.stopping?
  end

  def test_pool_that_is_too_small
    worker = QueueJobs.active_job_worker(concurrency: 6)
    assert_match(/each of 6 threads needs a connection/, assert_raises(ArgumentError) { worker.run }.message)
  end
end

class Program < RailsCase
  def test_transaction_mode
    order = Order.create!(number: 1)
    [BookJob.set(wait: 0.1), BookJob].each_with_index { |job, n| job.perform_later(10 + n, fails: true) }
    RetryJob.perform_later(20)
    TellJob.perform_later(order)
    until_orders([1, 10, 11, 20, 1001], "--concurrency", "3")
    retried = sql("SELECT args ->> 'executions' AS executions, state FROM queue_jobs.job WHERE args ->> 'job_class' = 'RetryJob' ORDER BY id")
    assert_equal [["0", "completed"], ["1", "completed"], ["2", "completed"]], retried.map(&:values)
    errors = sql("SELECT DISTINCT errors -> 0 ->> 'message' AS message, errors -> 0 ->> 'detail' LIKE '%book_job.rb%' AS stack, attempt FROM queue_jobs.job WHERE args ->> 'job_class' = 'BookJob' AND errors IS NOT NULL ORDER BY 1")
    assert_equal [["ArgumentError: no 10", true, 2], ["ArgumentError: no 11", true, 2]], errors.map(&:values)
  end

  def test_the_transaction_is_the_jobs
    ["/* x */ COMMIT", "SELECT 1; ROLLBACK"].each { |statement| EndJob.perform_later(statement) }
    BookJob.perform_later(1)
    lines = until_orders([1])
    errors = sql("SELECT DISTINCT state, errors -> 0 ->> 'message' LIKE '%does not begin or end the transaction%' AS refused FROM queue_jobs.job WHERE args ->> 'job_class' = 'EndJob'")
    assert_equal [["dead", true]], errors.map(&:values)
    assert_includes lines.map { |line| line[:event] }, "failed"
  end

  # Neither the end of the job nor the next one has the role that a job has set.
  def test_the_role_is_the_jobs
    ["SET LOCAL ROLE pg_monitor", "SET ROLE pg_monitor"].each { |statement| RoleJob.perform_later(statement) }
    BookJob.perform_later(1)
    until_orders([1])
    assert_equal [], sql("SELECT last_error FROM queue_jobs.job WHERE args ->> 'job_class' = 'RoleJob' AND state <> 'completed'")
    in_transaction do |connection|
      RoleJob.perform_later("SET ROLE pg_monitor")
      BookJob.perform_later(2)
      assert_equal %w[completed completed], run_due(connection, QueueJobs.active_job_worker).map(&:event)
    end
  end

  def test_an_interrupt_is_no_failure
    skip "this ActiveJob rescues only StandardErrors" unless ActiveJob.respond_to?(:perform_all_later)
    SlicesJob.perform_later(1)
    until_orders([1, 2, 3])
  end

  # Lease mode, for there the test sees that the job has begun.
  def test_a_long_job_sees_the_stop_and_goes_on_in_another_process
    skip "this ActiveJob rescues only StandardErrors" unless ActiveJob.respond_to?(:perform_all_later)
    StopJob.perform_later(1)
    command(PROJECT, "--rails", "--mode", "lease") { wait_until { Order.exists?(number: 1) } }
    assert_equal [1, 1], [Order.count, unfinished]
    until_orders([1, 2], "--mode", "lease")
  end

  def test_lease_mode
    order = Order.create!(number: 1)
    BookJob.perform_later(2)
    TellJob.perform_later(order)
    lines = until_orders([1, 2, 1001], "--mode", "lease", "--concurrency", "2", "--queues", "orders default")
    assert_equal ["lease", %w[orders default]], lines.first.values_at(:mode, :queues)
  end

  def test_terminated_connections
    %w[transaction lease].each_with_index do |mode, n|
      until_orders((0..n).to_a, "--mode", mode, "--concurrency", "2") do
        waiting = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%wait_for_jobs%' AND state = 'active' AND pid <> pg_backend_pid()"
        wait_until { !sql(waiting).empty? }
        sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid IN (#{waiting})")
        BookJob.perform_later(n)
      end
    end
  end
end
