require "json"
require "pg"

module QueueJobs
  # Ruby's values as the texts that the statements cast.
  module Values
    ARRAY = PG::TextEncoder::Array.new(elements_type: PG::TextEncoder::String.new)

    module_function

    # JSON as PostgreSQL takes it. Other objects than JSON has would silently become what to_s makes of them,
    # so they are refused.
    def json(value)
      unless json?(value)
        raise TypeError, "only Hash, Array, String, Symbol, Integer, finite Float, true, false and nil can be written as JSON: #{value.inspect[0, 200]}"
      end

      JSON.generate(value, max_nesting: 0)
    end

    # Whether there is something in it that JSON does not have at all.
    def foreign?(value)
      case value
      when nil, true, false, Integer, Float, Symbol, String then false
      when Array then value.any? { |one| foreign?(one) }
      when Hash then value.any? { |key, one| !(key.is_a?(Integer) || key.is_a?(String) || key.is_a?(Symbol)) || foreign?(one) }
      else true
      end
    end

    def json?(value)
      case value
      when nil, true, false, Integer, Symbol then true
      when String then value.encoding == Encoding::BINARY ? value.ascii_only? : value.valid_encoding?
      when Float then value.finite?
      when Array then value.all? { |one| json?(one) }
      when Hash then value.all? { |key, one| key?(key) && json?(one) }
      else false
      end
    end

    def key?(key)
      key.is_a?(Integer) || ((key.is_a?(String) || key.is_a?(Symbol)) && json?(key))
    end

    # A number of seconds, a duration of ActiveSupport, or what PostgreSQL reads as an interval.
    def interval(value)
      case value
      when nil, String then value
      when Numeric
        raise TypeError, "#{value} is no interval" unless value.to_f.finite?

        "#{(value * 1_000_000).round} microseconds"
      else value.respond_to?(:iso8601) ? value.iso8601 : raise(TypeError, "#{value.class} is no interval")
      end
    end

    # A Time or the like, which has a zone, or what PostgreSQL reads as a timestamptz.
    def timestamp(value)
      case value
      when nil, String then value
      else value.respond_to?(:hour) ? value.iso8601(6) : raise(TypeError, "#{value.inspect} has no time of day")
      end
    end

    def array(values)
      ARRAY.encode(values.map { |value| value&.to_s })
    end

    # PostgreSQL's text has neither a character 0 nor bytes that are no UTF-8.
    def text(value)
      utf8(value.to_s).gsub("\0") { '\0' }
    end

    # The text that the block makes of a handler's object, which may raise what it likes; then nil.
    def said(longest)
      text(yield)[0, longest]
    rescue Exception # rubocop:disable Lint/RescueException
      nil
    end

    # What each encoding of a server has.
    def plain(text)
      text.gsub(/[^\n\x20-\x7e]/, "?")
    end

    def utf8(text)
      return text.dup.force_encoding(Encoding::UTF_8).scrub if [Encoding::BINARY, Encoding::US_ASCII, Encoding::UTF_8].include?(text.encoding)

      text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace)
    end
  end
end
