# The Ruby client beside Sidekiq on Redis, each at its best documented settings; see run.sh, and python_queues.py,
# which measures likewise.
require "json"
require "socket"
require "redis"
require "sidekiq"
require "queue_jobs"

JOBS = Integer(ENV.fetch("JOBS", 20_000))
ROUNDS = Integer(ENV.fetch("ROUNDS", 3))
LATENCIES = Integer(ENV.fetch("LATENCIES", 200))
REDIS = { path: ENV.fetch("REDIS_SOCKET") }.freeze
BEGUN = ENV["BENCH_SOCKET"] ||= File.join(Dir.pwd, "begun.sock")
LIMIT = 300 # seconds for anything
TELLER = Socket.new(:UNIX, :DGRAM)

def monotonic
  Process.clock_gettime(Process::CLOCK_MONOTONIC)
end

def noop(told)
  TELLER.send(monotonic.to_s, 0, Socket.sockaddr_un(BEGUN)) if told
end

WORKER = QueueJobs::Worker.new
WORKER.handle("noop") { |job| noop(job.args["told"]) }

Sidekiq.configure_server { |config| config.redis = REDIS }
Sidekiq.configure_client { |config| config.redis = REDIS }

class NoopJob
  include Sidekiq::Job

  def perform(told)
    noop(told)
  end
end

class OwnQueue
  attr_reader :settings, :command

  def initialize(*options)
    @settings = options.join(" ")
    @command = [File.join(__dir__, "../../../clients/ruby/exe/queue_jobs"), *options, __FILE__]
    @connection = PG.connect
  end

  def fill(count)
    QueueJobs.enqueue_many(@connection, "noop", [{ told: false }] * count)
    @connection.exec("CHECKPOINT")
  end

  def enqueue
    QueueJobs.enqueue(@connection, "noop", { told: true })
  end

  def left
    @connection.exec("SELECT count(*) FROM queue_jobs.live_job").getvalue(0, 0).to_i
  end
end

# Sidekiq takes a job off its list before it runs it: the last ones do not count.
class OfSidekiq
  attr_reader :settings, :command

  def initialize(concurrency)
    @settings = "#{concurrency} threads"
    @command = ["sidekiq", "-q", "default", "-c", concurrency.to_s, "-r", __FILE__]
    @redis = Redis.new(REDIS)
  end

  def fill(count)
    count.times.each_slice(1000) { |slice| Sidekiq::Client.push_bulk("class" => NoopJob, "args" => slice.map { [false] }) }
  end

  def enqueue
    NoopJob.perform_async(true)
  end

  def left
    @redis.llen("queue:default")
  end
end

QUEUES = {
  "queue_jobs" => -> { OwnQueue.new("--mode=lease", "--concurrency=4", "--batch=500") },
  "queue_jobs_transaction" => -> { OwnQueue.new("--mode=transaction", "--concurrency=4") },
  "sidekiq" => -> { OfSidekiq.new(10) }
}.freeze

def wait_until(pause = 0.005)
  give_up = monotonic + LIMIT
  until yield
    abort "gave up waiting" if monotonic > give_up
    sleep pause
  end
end

# The queue's workers run for as long as the block takes.
def running(queue)
  pid = spawn(*queue.command, out: File::NULL, err: File::NULL, pgroup: true)
  yield
ensure
  Process.kill("TERM", -pid)
  Process.wait(pid)
end

def drain(queue)
  queue.fill(JOBS)
  running(queue) do
    wait_until(0.001) { queue.left < JOBS }
    start = monotonic
    wait_until { queue.left.zero? }
    JOBS / (monotonic - start)
  end
end

def told(begun)
  begun.wait_readable(LIMIT) ? Float(begun.recv(100)) : abort("gave up waiting")
end

def latencies(queue)
  begun = Addrinfo.unix(BEGUN, :DGRAM).bind
  measured = []
  running(queue) do
    (LATENCIES + 1).times do
      start = monotonic
      queue.enqueue
      measured << 1000 * (told(begun) - start)
      wait_until(0.001) { queue.left.zero? }
    end
  end
  File.unlink(BEGUN)
  measured.drop(1) # until the first one the workers started
end

def median(values)
  values.sort[values.size / 2]
end

if $PROGRAM_NAME == __FILE__
  PG.connect.exec("CREATE EXTENSION IF NOT EXISTS queue_jobs; SELECT queue_jobs.define_worker('noop', keep_completed => '0')")
  ENV.fetch("QUEUES", QUEUES.keys.join(",")).split(",").each do |name|
    queue = QUEUES.fetch(name).call
    rate = median(Array.new(ROUNDS) { drain(queue) })
    puts JSON.generate(language: "ruby", queue: name, settings: queue.settings, "jobs/s": rate.round, "pick-up ms, p50": median(latencies(queue)).round(2))
    $stdout.flush
  end
end
