# Tries to end the transaction in which it is claimed.
class EndJob < ActiveJob::Base
  def perform(statement)
    Order.connection.execute(statement)
  end
end
