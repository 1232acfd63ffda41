# The first execution fails, after it has written.
class BookJob < ActiveJob::Base
  queue_as :orders
  queue_with_priority 3

  def perform(number, fails: false)
    Order.create!(number: number)
    raise ArgumentError, "no #{number}" if fails && executions == 1
  end
end
