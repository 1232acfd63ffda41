# What the tests of this folder share: statements, workers in threads, the command, the examples of a
# document.
require "English"
require "json"
require "minitest/autorun"
require "open3"
require "queue_jobs/testing"
require "tempfile"
require "tmpdir"

module Help
  HERE = __dir__
  LIMIT = 180
  JOBS = "SELECT id, worker, state, attempt, last_error FROM queue_jobs.job ORDER BY id DESC LIMIT 20"

  def sql(statement, *parameters)
    connection = PG.connect
    QueueJobs::Statement.fetch(connection, statement, parameters)
  ensure
    connection&.close
  end

  # Statements without parameters.
  def script(text)
    connection = PG.connect
    connection.set_notice_processor { nil }
    connection.exec(text)
  ensure
    connection&.close
  end

  def with_connection
    connection = PG.connect
    yield connection
  ensure
    connection&.close
  end

  # Within a transaction that is rolled back.
  def in_test_transaction
    with_connection do |connection|
      connection.exec("BEGIN")
      yield connection
    end
  end

  def wait_until
    limit = QueueJobs.monotonic + LIMIT
    until yield
      flunk "gave up; jobs: #{sql(JOBS)}" if QueueJobs.monotonic > limit
      flunk "the program has ended" if @program && Process.wait(@program, Process::WNOHANG)
      sleep 0.05
    end
  end

  # Runs the worker in a thread until something is so.
  def work(worker, &done)
    thread = Thread.new { worker.run }
    wait_until(&done)
  ensure
    worker.stop
    assert thread.join(LIMIT), "the worker ends"
  end

  # Runs the command queue_jobs in a folder until the block returns; the Hashes that it has logged.
  def command(folder, *arguments, **environment)
    Tempfile.create("log") do |log|
      @program = Process.spawn(environment.transform_keys(&:to_s), RbConfig.ruby, "-I#{HERE}/../lib", "#{HERE}/../exe/queue_jobs", *arguments, chdir: folder, err: log.path)
      begin
        yield
      rescue Minitest::Assertion
        warn File.read(log.path)
        raise
      ensure
        status = end_program
      end
      logged = File.read(log.path)
      assert status.success?, "ended with #{status}: #{logged}"
      logged.lines.grep(/^\{/).map { |line| JSON.parse(line, symbolize_names: true) }
    end
  end

  # Ends the program, unless wait_until has seen its end; returns its status.
  def end_program
    unless $CHILD_STATUS&.pid == @program
      Process.kill(:TERM, @program)
      Process.wait(@program)
    end
    $CHILD_STATUS
  ensure
    @program = nil
  end

  # The examples of a document. Its database is the one that the test has.
  def blocks(path, language)
    text = File.read(File.expand_path("../../../#{path}", HERE), encoding: "UTF-8")
    text.scan(/^```#{language}\n(.*?)^```$/m).flatten.map { |block| block.gsub('"dbname=shop"', %("dbname=#{ENV.fetch("PGDATABASE")}")) }
  end
end
