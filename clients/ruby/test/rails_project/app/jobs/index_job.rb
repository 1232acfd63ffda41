# Only the latest of those that wait for a book counts.
class IndexJob < ActiveJob::Base
  queue_with_options tags: %w[search], max_retries: 0, dedup_key: ->(book, *) { "index #{book}" }, if_waiting: "replace"

  def perform(book, words = nil); end
end
