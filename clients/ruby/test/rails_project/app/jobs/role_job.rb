# Works as a role that it sets.
class RoleJob < ActiveJob::Base
  def perform(statement)
    Order.connection.execute(statement)
  end
end
