# Works until its process is to stop, and goes on in another one: what a continuation of Rails 8.1 does at each step.
class StopJob < ActiveJob::Base
  class Interrupt < Exception; end # rubocop:disable Lint/InheritException
  rescue_from(Interrupt) { self.class.perform_later(arguments.first + 1) }

  def perform(number)
    Order.create!(number: number)
    sleep 0.01 until number > 1 || self.class.queue_adapter.stopping?
    raise Interrupt if number == 1
  end
end
