require "json"
require "pg"
require "queue_jobs/values"

module QueueJobs
  # A statement and its parameters. These are texts, and the statement casts them: so neither the settings of
  # a connection nor its type maps matter, and it works through a pooler in transaction mode.
  class Statement
    class JsonDecoder < PG::SimpleDecoder
      def decode(text, _row = nil, _column = nil)
        JSON.parse(text, max_nesting: false)
      end
    end

    TEXTS = PG::TypeMapAllStrings.new
    DECODERS = {
      PG::TextDecoder::Boolean => [16], PG::TextDecoder::Integer => [20, 21, 23], PG::TextDecoder::Float => [700, 701], JsonDecoder => [114, 3802],
      PG::TextDecoder::TimestampWithTimeZone => [1184]
    }.each_with_object(PG::TypeMapByOid.new) do |(decoder, oids), map|
      oids.each { |oid| map.add_coder(decoder.new(oid: oid, format: 0)) }
    end

    NUMBERS = PG::TypeMapByOid.new.tap do |map|
      { PG::TextDecoder::Integer => [20, 21, 23], PG::TextDecoder::Float => [700, 701] }.each { |decoder, oids| oids.each { |oid| map.add_coder(decoder.new(oid: oid, format: 0)) } }
    end

    # The rows of a statement as Hashes, on a PG::Connection or on ActiveRecord's connection. decoders: NUMBERS
    # leaves all else as text.
    def self.fetch(connection, sql, values = [], decoders = DECODERS)
      connection = connection.raw_connection if connection.respond_to?(:raw_connection)
      result = connection.respond_to?(:answer) ? connection.answer(sql, values, TEXTS) : connection.exec_params(sql, values, 0, TEXTS)
      result.type_map = decoders
      result.field_names_as(:symbol).to_a
    ensure
      result&.clear
    end

    # In the transaction under way, or in one of its own.
    def self.in_transaction(connection, &block)
      raw = connection.respond_to?(:raw_connection) ? connection.raw_connection : connection
      return yield unless raw.transaction_status == PG::PQTRANS_IDLE

      connection.transaction { block.call }
    end

    attr_reader :values

    def initialize
      @values = []
    end

    # Takes a value; returns what stands for it in the statement.
    def add(cast, value)
      @values << text_of(cast, value)
      "$#{@values.size}::#{cast}"
    end

    def fetch(connection, sql, decoders = DECODERS)
      self.class.fetch(connection, sql, @values, decoders)
    end

    private

    def text_of(cast, value)
      return Values.array(value.map { |time| Values.timestamp(time) }) if cast == "timestamptz[]" && value
      return Values.array(value) if cast.end_with?("[]")
      return value if value.nil?

      case cast
      when "jsonb" then value.is_a?(WrittenJson) ? value.text : Values.json(value)
      when "interval" then Values.interval(value)
      when "timestamptz" then Values.timestamp(value)
      else value.to_s
      end
    end
  end

  # JSON that is text already. (A nil without it is SQL's NULL.)
  WrittenJson = Struct.new(:text)
end
