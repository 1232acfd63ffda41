require "json"
require "logger"
require "time"

# Each event is a Hash for a Logger, so that an application may do with it what it likes. JsonLines makes a
# line of JSON of it.
module QueueJobs
  class << self
    attr_accessor :logger

    def log(severity, event, **fields)
      logger.add(severity, { event: event, **fields.compact })
    end
  end

  self.logger = Logger.new(nil)

  class JsonLines < Logger::Formatter
    def call(severity, time, _program, message)
      message = { event: message } unless message.is_a?(Hash)
      line = { time: time.utc.iso8601(6), level: severity.downcase, **message }
      "#{JSON.generate(line.transform_values { |value| readable(value) })}\n"
    end

    private

    def readable(value)
      value.is_a?(String) ? Values.utf8(value) : value
    end
  end

  LEVELS = %w[debug info warn error].freeze

  # What the command does. An application that has its own logger leaves it out. Without a level QUEUE_JOBS_LOG
  # says which.
  def self.log_to_stderr(level = LEVELS.index(ENV["QUEUE_JOBS_LOG"]) || Logger::INFO)
    $stderr.sync = true
    self.logger = Logger.new($stderr, level: level, formatter: JsonLines.new)
  end
end
