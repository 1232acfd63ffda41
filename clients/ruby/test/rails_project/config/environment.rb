# An application for the tests of the ActiveJob adapter (../rails.rb). WITHOUT_RAILTIES=1: of Rails,
# ActiveRecord and ActiveJob only.
if ENV["WITHOUT_RAILTIES"]
  require "active_record"
  require "active_job"
  require "queue_jobs"
  require "yaml"
  require "erb"

  ActiveRecord::Base.establish_connection(YAML.safe_load(ERB.new(File.read("#{__dir__}/database.yml")).result).fetch("test"))
  ActiveJob::Base.logger = Logger.new(nil)
  ActiveJob::Base.queue_adapter = :queue_jobs
  ActiveRecord::Base.include GlobalID::Identification
  GlobalID.app = "shop"
  Dir.glob("#{__dir__}/../app/*/*.rb").each { |file| require file }
else
  ENV["RAILS_ENV"] = "test"
  require "rails"
  require "active_record/railtie"
  require "active_job/railtie"
  # As Bundler.require would, after Rails and before the application.
  require "queue_jobs"

  module Shop
    class Application < Rails::Application
      config.root = File.expand_path("..", __dir__)
      config.load_defaults 6.1
      config.eager_load = false
      config.logger = Logger.new(nil)
      config.active_job.queue_adapter = :queue_jobs
    end
  end
  Rails.application.initialize!
end
