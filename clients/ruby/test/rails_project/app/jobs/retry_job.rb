# Fails by an error of the database, and is enqueued again by ActiveJob.
class RetryJob < ActiveJob::Base
  retry_on ActiveRecord::RecordNotUnique, wait: 0, attempts: 3

  def perform(number)
    Order.create!(number: number)
    Order.create!(number: number) if executions < 3
  end
end
