require "queue_jobs/statement"

# Enqueues within the caller's own transaction: what is rolled back was never enqueued. Each method takes the
# connection of that transaction first, a PG::Connection or ActiveRecord's. An option that is nil counts as
# not given.
module QueueJobs
  module Client
    CASTS = {
      run_at: "timestamptz", delay: "interval", priority: "integer", queue: "text", dedup_key: "text", context: "jsonb", expires_in: "interval",
      jitter: "interval", batch: "bigint", after: "bigint[]", if_dead: "text", max_retries: "integer",
      timeout: "interval", keep_completed: "interval", tags: "text[]", if_waiting: "text", max_delay: "interval", run_ats: "timestamptz[]", priorities: "integer[]", dedup_keys: "text[]", batch_size: "integer", batch_interval: "interval",
      on_success: "text", on_ended: "text", on_dead: "text", args: "jsonb", parent: "bigint", open: "boolean", keep: "interval"
    }.freeze
    CALLBACKS = %i[on_success on_ended on_dead args keep].freeze
    OPTIONS = {
      enqueue: %i[run_at delay priority queue dedup_key context expires_in jitter batch after if_dead max_retries timeout keep_completed tags if_waiting max_delay],
      enqueue_many: %i[run_at delay priority batch_size batch_interval batch run_ats priorities dedup_keys queue jitter expires_in tags max_retries],
      new_batch: [*CALLBACKS, :parent, :open],
      enqueue_workflow: [*CALLBACKS, :dedup_key]
    }.freeze

    module_function

    # Calls a function of the extension with those of the options that are given; its own defaults stand for
    # the others.
    def call(connection, function, positional, options = {}, allowed = OPTIONS.fetch(function, []))
      refuse_unknown(function, options.keys - allowed, allowed)
      statement = Statement.new
      arguments = positional.map { |cast, value| statement.add(cast, value) }
      options.compact.each { |name, value| arguments << "#{name} => #{statement.add(CASTS.fetch(name), value)}" }
      statement.fetch(connection, "SELECT * FROM queue_jobs.#{function}(#{arguments.join(", ")}) AS result")
    end

    def refuse_unknown(function, unknown, allowed)
      raise ArgumentError, "#{function} has no option #{unknown.join(", ")}; it has #{allowed.join(", ")}" unless unknown.empty?
    end

    def enqueue(function, connection, worker, args, options)
      options = { **options, context: context(options[:context]) }
      call(connection, function, [["text", worker], ["jsonb", args || {}]], options, OPTIONS[:enqueue]).first&.fetch(:result)
    end

    def enqueue_many(connection, worker, args, contexts, options)
      texts = args.map { |one| Values.json(one) }
      inherited = context(nil)
      contexts ||= [inherited] * texts.size if inherited
      positional = [["text", worker], ["jsonb[]", texts]]
      positional << ["jsonb[]", contexts.map { |one| Values.json(one) }] if contexts
      call(connection, :enqueue_many, positional, options).map { |row| row[:result] }
    end

    # Within the block's time the session has this context, which the jobs inherit from it. Outside of a
    # transaction it makes one, for a setting lasts no longer.
    def with_context(connection, context)
      return yield if context.nil?

      Statement.in_transaction(connection) do
        before = Statement.fetch(connection, "SELECT coalesce(current_setting('queue_jobs.context', true), '') AS value").first[:value]
        set_context(connection, Values.json({ **(before.empty? ? {} : JSON.parse(before)), **context.transform_keys(&:to_s) }))
        yield.tap { set_context(connection, before) }
      end
    end

    def set_context(connection, text)
      Statement.fetch(connection, "SELECT set_config('queue_jobs.context', $1::text, true)", [text])
    end

    # The context given, or the running job's; with the trace that OpenTelemetry has under way, if the
    # application uses it.
    def context(given)
      given ||= QueueJobs.current_job&.context
      return given unless defined?(::OpenTelemetry) && ::OpenTelemetry.respond_to?(:propagation)

      carrier = {}
      ::OpenTelemetry.propagation.inject(carrier)
      result = { **(given || {}), **carrier }
      result unless result.empty?
    end

    STEP = %i[step worker args after if_dead delay priority queue max_retries timeout tags dedup_key].freeze

    # A step as enqueue_workflow() of the extension has it.
    def step(given)
      given = given.transform_keys(&:to_sym)
      refuse_unknown("a step", given.keys - STEP, STEP)
      %i[delay timeout].each { |key| given = { **given, key => Values.interval(given[key]) } if given.key?(key) }
      given
    end
  end

  # A job of a workflow.
  Step = Struct.new(:step, :job)

  class << self
    # The id of the job that will do the work; nil if the worker is disabled.
    def enqueue(connection, worker, args = {}, **options)
      Client.enqueue(:enqueue, connection, worker, args, options)
    end

    # As enqueue, but nil for a duplicate.
    def try_enqueue(connection, worker, args = {}, **options)
      Client.enqueue(:try_enqueue, connection, worker, args, options)
    end

    # A job for each of args, in that order; their ids.
    def enqueue_many(connection, worker, args, contexts: nil, **options)
      Client.enqueue_many(connection, worker, args, contexts, options)
    end

    # A batch: the id that enqueue(batch: …) takes.
    def new_batch(connection, name = nil, **options)
      Client.call(connection, :new_batch, [["text", name]], options).first[:result]
    end

    # A batch that was made with open: true can end from now on.
    def close_batch(connection, batch)
      Client.call(connection, :close_batch, [["bigint", batch]])
      nil
    end

    # Jobs of which some wait for others: steps are { step:, worker:, args:, after: […], … }.
    def enqueue_workflow(connection, name, steps, context: nil, **options)
      positional = [["text", name], ["jsonb", steps.map { |one| Client.step(one) }]]
      rows = Client.with_context(connection, Client.context(context)) { Client.call(connection, :enqueue_workflow, positional, options) }
      rows.map { |row| Step.new(row[:step], row[:job]) }
    end

    # True if this is the first signal of that name to a job that is not finished.
    def signal(connection, job, name, payload = nil)
      Client.call(connection, :signal, [["bigint", job], ["text", name], ["jsonb", WrittenJson.new(Values.json(payload))]]).first[:result]
    end

    # The job that this thread runs, if any. What its handler enqueues inherits its context.
    def current_job
      Thread.current.thread_variable_get(:queue_jobs_job)
    end

    def with_current_job(job)
      before = current_job
      Thread.current.thread_variable_set(:queue_jobs_job, job)
      yield
    ensure
      Thread.current.thread_variable_set(:queue_jobs_job, before)
    end
  end
end
