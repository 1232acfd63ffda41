\set k random(1, :keys)
SELECT graphile_worker.add_job('noop', json_build_object('k', :k::bigint), run_at => now() + :delay::interval, job_key => 'key ' || :k::bigint, job_key_mode => :mode);
