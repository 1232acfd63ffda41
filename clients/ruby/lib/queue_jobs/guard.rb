require "strscan"

module QueueJobs
  # The handler's transaction is the claim's: if it ended it, the job would be claimed again at once, or run as
  # if by lease. So statements that begin or end a transaction are told from others, in time that grows as the
  # text does.
  module Guard
    MAY_END = /\b(?:begin|start|commit|end|abort|rollback|prepare)\b/i
    # Of a statement without its comments and strings. In the body of a function END ends no transaction.
    ENDS = /\A\s*(?:begin|start\s+transaction|commit|abort|rollback(?!\s+(?:work\s+|transaction\s+)?to\b)|prepare\s+transaction)\b/i
    END_ALONE = /\A\s*end\b/i
    BODY = /\bbegin\s+atomic\b/i

    # What is neither a string nor a comment, up to where one may begin. In a$1$ the dollar is a part of a name.
    CODE = /(?:[^\W\d][\w$]*+|[^\w'"$;\/-]++|\d++)++/
    DOLLARS = /\$(?:[^\W\d]\w*+)?\$/

    class << self
      # Whether one of the statements of a text begins or ends a transaction.
      def ends_transaction?(sql)
        sql = Values.utf8(sql.to_s)
        return false unless MAY_END.match?(sql)

        in_body = false
        statements(sql) do |statement|
          return true if ENDS.match?(statement) || (!in_body && END_ALONE.match?(statement))

          in_body ||= BODY.match?(statement)
        end
        false
      end

      def check(sql)
        return unless ends_transaction?(sql)

        raise Refused, "a handler does not begin or end the transaction: it is the one of its job; use SAVEPOINT, or lease mode"
      end

      private

      # Without comments, and with nothing in its strings.
      def statements(sql)
        scanner = StringScanner.new(sql)
        statement = +""
        until scanner.eos?
          if scanner.skip(/;/)
            yield statement
            statement = +""
          elsif skipped?(scanner)
            statement << " "
          else
            statement << (scanner.scan(CODE) || scanner.getch)
          end
        end
        yield statement
      end

      def skipped?(scanner)
        escapes = after_e?(scanner)
        return escapes ? escaped(scanner) : skip_until(scanner, /'/) if scanner.skip(/'/)
        return skip_until(scanner, /"/) if scanner.skip(/"/)
        return skip_until(scanner, /\n/) if scanner.skip(/--/)
        return comment(scanner) if scanner.skip(%r{/\*})

        dollars = scanner.scan(DOLLARS)
        dollars && skip_until(scanner, Regexp.new(Regexp.escape(dollars)))
      end

      # Whether what comes next follows an E that is no end of a name.
      def after_e?(scanner)
        before = scanner.string.byteslice([scanner.pos - 2, 0].max...scanner.pos).b
        before.match?(/(?:\A|[^\w$\x80-\xff])[eE]\z/n)
      end

      def skip_until(scanner, mark)
        scanner.skip_until(mark) || scanner.terminate
        true
      end

      # A doubled quote is a part of it, as what follows a backslash is.
      def escaped(scanner)
        while scanner.skip_until(/['\\]/)
          next scanner.getch if scanner.matched == "\\"
          return true unless scanner.skip(/'/)
        end
        scanner.terminate
        true
      end

      def comment(scanner)
        depth = 1
        while depth.positive? && scanner.skip_until(%r{/\*|\*/})
          depth += scanner.matched == "/*" ? 1 : -1
        end
        scanner.terminate if depth.positive?
        true
      end
    end

    # What a handler asks of its job's connection in vain.
    class Refused < StandardError; end
  end

  # Extends a connection of pg's that a worker uses: its statements are answered in time, and those of a handler
  # do not end the transaction.
  module WorkersConnection
    # Seconds without an answer after which the connection counts as lost.
    attr_accessor :silence

    # Within the block it is a handler's: its statements may take long, and are looked at.
    def lend
      @lent = true
      yield
    ensure
      @lent = false
    end

    # A statement with parameters, of ours.
    def answer(sql, values, types)
      answered { send_query_params(sql, values, 0, types) }
    end

    def transaction(&block)
      Guard.check("BEGIN") if @lent
      super
    end

    %i[exec async_exec sync_exec query async_query sync_query].each do |name|
      next unless PG::Connection.method_defined?(name)

      define_method(name) do |sql, *rest, &block|
        Guard.check(sql) if @lent
        next super(sql, *rest, &block) if @lent || !rest.empty? || block

        answered { send_query(sql) }
      end
    end

    %i[exec_params async_exec_params sync_exec_params send_query async_send_query sync_send_query send_query_params async_send_query_params sync_send_query_params].each do |name|
      next unless PG::Connection.method_defined?(name)

      define_method(name) do |sql, *rest, &block|
        Guard.check(sql) if @lent
        super(sql, *rest, &block)
      end
    end

    %i[prepare async_prepare sync_prepare send_prepare async_send_prepare sync_send_prepare].each do |name|
      next unless PG::Connection.method_defined?(name)

      define_method(name) do |statement, sql, *rest, &block|
        Guard.check(sql) if @lent
        super(statement, sql, *rest, &block)
      end
    end

    private

    def answered
      discard_results
      yield
      unless block(@silence)
        close
        raise PG::ConnectionBad, "no answer for #{@silence} s"
      end
      get_last_result
    end
  end
end
