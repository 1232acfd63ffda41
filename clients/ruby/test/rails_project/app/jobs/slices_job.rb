# Goes on after an interrupt that is no failure, as a continuation of Rails 8.1 does.
class SlicesJob < ActiveJob::Base
  class Interrupt < Exception; end # rubocop:disable Lint/InheritException
  rescue_from(Interrupt) { self.class.perform_later(arguments.first + 1) }

  def perform(number)
    Order.create!(number: number)
    raise Interrupt if number < 3
  end
end
