INSERT INTO textbook.job (args) SELECT jsonb_build_object('n', i) FROM generate_series(1, :jobs) AS i;
