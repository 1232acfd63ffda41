class Order < ActiveRecord::Base
  after_commit { CountJob.perform_later(number) if told }
end
