class TellJob < ActiveJob::Base
  def perform(order)
    order.update!(told: true)
    Order.transaction(requires_new: true) do
      Order.create!(number: 666)
      raise ActiveRecord::Rollback
    end
  end
end
