\set k random(1, :keys)
SELECT queue_jobs.enqueue('claimed_kept', jsonb_build_object('k', :k::bigint), delay => :delay::interval, dedup_key => 'key ' || :k::bigint, if_waiting => :how);
