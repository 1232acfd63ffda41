-- Cron expressions: what is refused, and next_runs() against what a naive clock says.
SET search_path = helper;
SET timezone = 'UTC';

-- What is refused, with field and term. (The hints are in README's and the functions' words.)
CREATE FUNCTION cron_problem(cron text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
BEGIN
    PERFORM queue_jobs.next_runs(cron);
    RETURN NULL;
EXCEPTION WHEN invalid_parameter_value THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    RETURN detail;
END $$;

SELECT cron, cron_problem(cron)
  FROM unnest(ARRAY['', ' ', '* * * *', '* * * * * * *', '60 * * * *', '* 24 * * *', '* * 0 * *', '* * 32 * *', '* * * 0 *', '* * * 13 *',
                    '* * * * 8', '60 * * * * *', 'x * * * *', '-1 * * * *', '1- * * * *', '1-2-3 * * * *', '* 5-3 * * *', '1,,2 * * * *', ', * * * *',
                    '*/0 * * * *', '*/61 * * * *', '*/ * * * *', '*/x * * * *', '5/15 * * * *', '1-9/3/2 * * * *', '** * * * *', '*5 * * * *',
                    '99999999999999999999 * * * *', '* * * janu *', '* * * jan-x *', '* * * * monday', '* * * * fri-mon', '* * L-3 * *', '* * 15W * *', '* L * * *', '$ * * * *',
                    '* * * L *', '? * * * *', '0 0 30 2 *', '0 0 31 feb,apr,jun,sep,nov *', '0 0 30 2 */2', '@', '@every', '@reboot', '@dailys',
                    'every', 'every 0 seconds', 'every -1 second', 'every 5', 'every 5 bananas', 'every banana', 'every 1.5 hours', 'every 1 month', 'every 11 years',
                    'every 4000 days', 'every 999999999999999999999 weeks', 'every 90 seconds 5', '30 bananas', '0 0 * * * UTC', E'0 0 * *\n']) AS cron;
-- What is accepted, in all its spellings.
SELECT cron, cron_problem(cron) AS problem
  FROM unnest(ARRAY['* * * * *', ' 0  0  *  *  * ', E'\t0 0\n* * *', '0 0 31 1,2 *', '0 0 29 2 *', '0 0 30 2 1', '0 0 L 2 *', '0 0 l,15 * *', '0 0 $ * *', '@Daily', 'EVERY 90 Seconds',
                    'every minute', 'every 1 hour 30 minutes', 'every 1h30m', 'every 2 weeks', 'every 3650 days', '30 seconds', '0 0 * JAN-Mar,dec Mon-FRI', '0 0 * * fri-sun', '0 0 * * 5-7', '*/60 */24 * * *',
                    '*/10 * * * * *', '1-59/2,0 * * * *']) AS cron
 WHERE cron_problem(cron) IS NOT NULL;
SELECT sqlstate_of($$SELECT queue_jobs.next_runs('x')$$), sqlstate_of($$SELECT queue_jobs.next_runs(NULL)$$), sqlstate_of($$SELECT queue_jobs.next_runs('@daily', NULL)$$),
       sqlstate_of($$SELECT queue_jobs.next_runs('@daily', count => -1)$$), sqlstate_of($$SELECT queue_jobs.next_runs('@daily', count => 100001)$$);
SELECT error_of($$SELECT queue_jobs.next_runs('60 0 * * *')$$);
SELECT error_of($$SELECT queue_jobs.next_runs('@daily', 'Europe/Berln')$$);

-- By hand. Clocks go forward in Berlin on 29 March 2026 at 2:00 to 3:00, and back on 25 October at 3:00 to 2:00.
CREATE TABLE by_hand (cron text, timezone text, after timestamptz, expected timestamptz[]);
INSERT INTO by_hand VALUES
    ('0 0 * * *', 'UTC', '2026-01-01 00:00+00', '{2026-01-02 00:00+00, 2026-01-03 00:00+00}'),
    ('0 0 * * *', 'UTC', '2026-01-01 23:59:59.999999+00', '{2026-01-02 00:00+00}'),
    ('0 0 * * *', 'UTC', '1999-12-31 23:59:59.5+00', '{2000-01-01 00:00+00}'),
    ('0 0 * * *', 'UTC', '1969-12-31 12:00:00.5+00', '{1970-01-01 00:00+00, 1970-01-02 00:00+00}'),
    ('* * * * * *', 'UTC', '1999-12-31 23:59:58.5+00', '{1999-12-31 23:59:59+00, 2000-01-01 00:00+00}'),
    ('* * * * * *', 'UTC', '1969-12-31 23:59:58+00', '{1969-12-31 23:59:59+00, 1970-01-01 00:00+00}'),
    ('@hourly', 'Asia/Kathmandu', '2026-01-01 00:00+00', '{2026-01-01 00:15+00, 2026-01-01 01:15+00}'),
    ('@weekly', 'UTC', '2026-11-20 00:00+00', '{2026-11-22 00:00+00}'),
    ('@monthly', 'UTC', '2026-11-20 00:00+00', '{2026-12-01 00:00+00, 2027-01-01 00:00+00}'),
    ('@yearly', 'UTC', '2026-11-20 00:00+00', '{2027-01-01 00:00+00, 2028-01-01 00:00+00}'),
    ('*/20 * * * * *', 'UTC', '2026-01-01 00:00:05+00', '{2026-01-01 00:00:20+00, 2026-01-01 00:00:40+00, 2026-01-01 00:01+00}'),
    ('30 59 23 31 12 *', 'UTC', '2026-01-01 00:00+00', '{2026-12-31 23:59:30+00, 2027-12-31 23:59:30+00}'),
    ('every 90 seconds', 'UTC', '2026-01-01 00:00:05.5+00', '{2026-01-01 00:01:35.5+00, 2026-01-01 00:03:05.5+00}'),
    ('30 seconds', 'UTC', '2026-01-01 00:00+00', '{2026-01-01 00:00:30+00}'),
    ('every 1 day', 'Europe/Berlin', '2026-03-28 12:00+01', '{2026-03-29 13:00+02}'),
    ('0 0 29 2 *', 'UTC', '2096-03-01 00:00+00', '{2104-02-29 00:00+00}'),
    ('0 0 29 2 */7', 'UTC', '2026-01-01 00:00+00', '{2032-02-29 00:00+00, 2060-02-29 00:00+00, 2088-02-29 00:00+00, 2128-02-29 00:00+00}'),
    ('0 0 L * *', 'UTC', '2027-12-31 12:00+00', '{2028-01-31 00:00+00, 2028-02-29 00:00+00, 2028-03-31 00:00+00, 2028-04-30 00:00+00}'),
    ('0 0 L 2 *', 'UTC', '2100-01-01 00:00+00', '{2100-02-28 00:00+00}'),
    ('0 0 15,$ * *', 'UTC', '2026-02-01 00:00+00', '{2026-02-15 00:00+00, 2026-02-28 00:00+00, 2026-03-15 00:00+00}'),
    -- Either day will do if both are restricted; both must fit if one begins with "*" (Vixie cron).
    ('0 0 13 * 5', 'UTC', '2026-02-01 00:00+00', '{2026-02-06 00:00+00, 2026-02-13 00:00+00, 2026-02-20 00:00+00}'),
    ('0 0 13 * fri', 'UTC', '2026-03-07 00:00+00', '{2026-03-13 00:00+00, 2026-03-20 00:00+00}'),
    ('0 0 */2 * 1', 'UTC', '2026-02-01 00:00+00', '{2026-02-09 00:00+00, 2026-02-23 00:00+00, 2026-03-09 00:00+00}'),
    ('0 0 * * 0', 'UTC', '2026-02-01 00:00+00', '{2026-02-08 00:00+00}'),
    ('0 0 * * 7', 'UTC', '2026-02-01 00:00+00', '{2026-02-08 00:00+00}'),
    ('0 0 * * sat-sun', 'UTC', '2026-02-01 00:00+00', '{2026-02-07 00:00+00, 2026-02-08 00:00+00, 2026-02-14 00:00+00}'),
    -- Fixed times: one that is left out comes right after the gap, once; one that comes twice is the first.
    ('30 2 * * *', 'Europe/Berlin', '2026-03-28 03:00+01', '{2026-03-29 03:00+02, 2026-03-30 02:30+02}'),
    ('0,30 2,3 * * *', 'Europe/Berlin', '2026-03-29 00:00+01', '{2026-03-29 03:00+02, 2026-03-29 03:30+02, 2026-03-30 02:00+02}'),
    ('30 2 * * *', 'Europe/Berlin', '2026-10-24 03:00+02', '{2026-10-25 02:30+02, 2026-10-26 02:30+01}'),
    ('30 2 * * *', 'Europe/Berlin', '2026-10-25 02:45+02', '{2026-10-26 02:30+01}'),
    ('*/20 30 2 * * *', 'Europe/Berlin', '2026-03-28 03:00+01', '{2026-03-29 03:00+02, 2026-03-30 02:30+02, 2026-03-30 02:30:20+02}'),
    ('0 3 * * *', 'Europe/Berlin', '2026-10-25 00:00+02', '{2026-10-25 03:00+01}'),
    -- "*" in hour or minute: elapsed time.
    ('0 * * * *', 'Europe/Berlin', '2026-03-29 00:30+01', '{2026-03-29 01:00+01, 2026-03-29 03:00+02, 2026-03-29 04:00+02}'),
    ('0 * * * *', 'Europe/Berlin', '2026-10-25 01:30+02', '{2026-10-25 02:00+02, 2026-10-25 02:00+01, 2026-10-25 03:00+01}'),
    ('*/30 2 * * *', 'Europe/Berlin', '2026-03-29 00:00+01', '{2026-03-30 02:00+02}'),
    ('*/30 2 * * *', 'Europe/Berlin', '2026-10-25 00:00+02', '{2026-10-25 02:00+02, 2026-10-25 02:30+02, 2026-10-25 02:00+01, 2026-10-25 02:30+01}'),
    -- Half an hour; midnight left out; a day left out; for good.
    ('15 2 * * *', 'Australia/Lord_Howe', '2026-10-03 12:00+10:30', '{2026-10-04 02:30+11, 2026-10-05 02:15+11}'),
    ('45 1 * * *', 'Australia/Lord_Howe', '2026-04-04 12:00+11', '{2026-04-05 01:45+11, 2026-04-06 01:45+10:30}'),
    ('@daily', 'America/Sao_Paulo', '2018-11-03 12:00-03', '{2018-11-04 01:00-02, 2018-11-05 00:00-02}'),
    ('@daily', 'Africa/Cairo', '2026-04-23 12:00+02', '{2026-04-24 01:00+03, 2026-04-25 00:00+03}'),
    ('0 12 * * *', 'Pacific/Apia', '2011-12-29 00:00-10', '{2011-12-29 12:00-10, 2011-12-31 00:00+14, 2011-12-31 12:00+14}'),
    ('0 12 30 12 *', 'Pacific/Apia', '2011-12-01 00:00-10', '{2011-12-31 00:00+14, 2012-12-30 12:00+14}'),
    ('15 0 * * *', 'America/Caracas', '2016-04-30 12:00-04:30', '{2016-05-01 00:15-04:30, 2016-05-02 00:15-04}'),
    ('45 2 * * *', 'America/Caracas', '2016-04-30 12:00-04:30', '{2016-05-01 03:00-04, 2016-05-02 02:45-04}');
SELECT h.cron, h.timezone, h.after, h.expected, r.got
  FROM by_hand h, LATERAL (SELECT array_agg(n) AS got FROM queue_jobs.next_runs(h.cron, h.timezone, h.after, cardinality(h.expected)) AS n) r
 WHERE r.got IS DISTINCT FROM h.expected;
-- No end of time is reached, and no error.
SELECT count(*) FROM queue_jobs.next_runs('@daily', after => 'infinity');
SELECT count(*) FROM queue_jobs.next_runs('every 10 seconds', after => '-infinity');
SELECT count(*) FROM queue_jobs.next_runs('@yearly', 'Europe/Berlin', '294200-01-01', 1000);
SELECT n >= '4713-01-01 BC' AS early FROM queue_jobs.next_runs('@daily', 'Europe/Berlin', '4713-01-05 BC', 1) AS n;
SELECT count(*) FROM queue_jobs.next_runs('@daily', count => 0);

-- By a naive clock, which knows nothing of the above: it goes from minute to minute, as pg_timezone_names' clocks do,
-- and looks at each local time that it shows, or has left out.
CREATE FUNCTION field(cron text, which integer, low integer, high integer, names text[] DEFAULT '{}') RETURNS integer[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    term text; bounds text[]; step integer; result integer[] := '{}';
BEGIN
    cron := split_part(cron, ' ', which);
    FOR i IN 1 .. cardinality(names) LOOP
        cron := replace(cron, names[i], (low + i - 1)::text);
    END LOOP;
    FOREACH term IN ARRAY string_to_array(cron, ',') LOOP
        CONTINUE WHEN term = 'L';
        step := coalesce(nullif(split_part(term, '/', 2), ''), '1');
        bounds := string_to_array(replace(split_part(term, '/', 1), '*', low || '-' || high), '-');
        result := result || ARRAY(SELECT generate_series(bounds[1]::integer, coalesce(bounds[2], bounds[1])::integer, step));
    END LOOP;
    RETURN result;
END $$;
CREATE TABLE expression AS
SELECT cron, field(cron, 1, 0, 59) AS minutes, field(cron, 2, 0, 23) AS hours, field(cron, 3, 1, 31) AS days,
       field(cron, 4, 1, 12, '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}') AS months,
       field(cron, 5, 0, 7, '{sun,mon,tue,wed,thu,fri,sat}') AS weekdays,
       split_part(cron, ' ', 3) LIKE '%L%' AS last_day,
       cron ~ '^\S+ \S+ [^*]\S* \S+ [^*]' AS either_day,
       cron ~ '^(\*|\S+ \*)' AS elapsed
  FROM unnest(ARRAY['* * * * *', '*/15 * * * *', '0 * * * *', '30 * * * *', '*/20 2 * * *', '*/7 0-3 * * *', '0 */2 * * *', '10 */3 * * *', '59 23 * * *', '0 0 * * *',
                    '30 0 * * *', '0 1 * * *', '30 1 * * *', '45 1 * * *', '0 2 * * *', '15 2 * * *', '30 2 * * *', '0 3 * * *', '59 2 * * *', '0,15,30,45 1,2,3 * * *',
                    '30 0-23 * * *', '5-55/10 2 * * *', '0 12 * * *', '30 23 * * *', '45 2 1-31 * *', '30 2 * * sun', '15 0 * mar-oct fri-sat', '0 2 L * *']) AS cron;
-- Whether expression e matches local time t, as columns of its parts.
\set matches '(t.minute = ANY (e.minutes) AND t.hour = ANY (e.hours) AND t.month = ANY (e.months) AND CASE WHEN e.either_day THEN (t.day = ANY (e.days) OR e.last_day AND t.last) OR t.weekday = ANY (e.weekdays) OR (t.weekday = 0 AND 7 = ANY (e.weekdays)) ELSE (t.day = ANY (e.days) OR e.last_day AND t.last) AND (t.weekday = ANY (e.weekdays) OR (t.weekday = 0 AND 7 = ANY (e.weekdays))) END)'
\set parts 'extract(minute FROM l.local)::integer AS minute, extract(hour FROM l.local)::integer AS hour, extract(day FROM l.local)::integer AS day, extract(month FROM l.local)::integer AS month, extract(dow FROM l.local)::integer AS weekday, extract(day FROM l.local + interval ''1 day'') = 1 AS last'
CREATE TABLE clock_change (timezone text, around timestamptz);
INSERT INTO clock_change VALUES
    ('Europe/Berlin', '2026-03-29 01:00+00'), ('Europe/Berlin', '2026-10-25 01:00+00'), ('America/New_York', '2026-03-08 07:00+00'), ('America/New_York', '2026-11-01 06:00+00'),
    ('Australia/Lord_Howe', '2026-04-04 15:00+00'), ('Australia/Lord_Howe', '2026-10-03 15:30+00'), ('Africa/Cairo', '2026-04-23 22:00+00'), ('Africa/Cairo', '2026-10-29 21:00+00'),
    ('America/Sao_Paulo', '2018-02-18 02:00+00'), ('America/Sao_Paulo', '2018-11-04 03:00+00'), ('Antarctica/Troll', '2026-03-29 01:00+00'), ('Antarctica/Troll', '2026-10-25 01:00+00'),
    ('Pacific/Apia', '2011-12-30 10:00+00'), ('America/Caracas', '2016-05-01 07:00+00'), ('UTC', '2026-02-28 00:00+00');
-- shown: what the clock shows at each minute; passed: the local minutes it has come to or left out, unless it had been there before.
CREATE TABLE shown AS
SELECT timezone, around, at, l.local, :parts
  FROM clock_change c, generate_series(c.around - interval '50 hours', c.around + interval '50 hours', '1 minute') AS at, LATERAL (SELECT at AT TIME ZONE c.timezone AS local) AS l;
CREATE TABLE passed AS
SELECT timezone, around, at, l.local, :parts
  FROM (SELECT timezone, around, at, local AS now, max(local) OVER (PARTITION BY timezone, around ORDER BY at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached FROM shown) AS s,
       LATERAL (SELECT generate_series(s.reached + interval '1 minute', s.now, '1 minute') AS local) AS l
 WHERE s.reached IS NOT NULL;
CREATE INDEX ON shown (timezone, around);
CREATE INDEX ON passed (timezone, around);
ANALYZE shown, passed;
-- The clocks do change there: by local minutes left out, and shown again.
SELECT timezone, around, count(*) FILTER (WHERE n > 1) AS gaps, sum(n - 1) FILTER (WHERE n > 1) AS minutes, 6000 - count(*) AS again
  FROM (SELECT timezone, around, at, count(*) AS n FROM passed GROUP BY timezone, around, at) AS p GROUP BY timezone, around ORDER BY timezone, around;
CREATE TABLE tested AS
SELECT e.cron, c.timezone, c.around,
       coalesce(CASE WHEN e.elapsed
                     THEN (SELECT array_agg(t.at ORDER BY t.at) FROM shown t
                            WHERE t.timezone = c.timezone AND t.around = c.around AND t.at > c.around - interval '50 hours' AND :matches)
                     ELSE (SELECT array_agg(DISTINCT t.at ORDER BY t.at) FROM passed t
                            WHERE t.timezone = c.timezone AND t.around = c.around AND :matches) END, '{}') AS expected,
       ARRAY(SELECT n FROM queue_jobs.next_runs(e.cron, c.timezone, c.around - interval '50 hours', 6001) AS n WHERE n <= c.around + interval '50 hours') AS got
  FROM expression e, clock_change c;
SELECT count(*) AS cases, count(*) FILTER (WHERE expected <> '{}') AS with_ticks, sum(cardinality(expected)) > 100000 AS many_ticks FROM tested;
SELECT * FROM tested WHERE expected <> got;

-- Which days, over eight years.
CREATE TABLE day_expression AS
SELECT cron, field(cron, 1, 0, 59) AS minutes, field(cron, 2, 0, 23) AS hours, field(cron, 3, 1, 31) AS days,
       field(cron, 4, 1, 12, '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}') AS months,
       field(cron, 5, 0, 7, '{sun,mon,tue,wed,thu,fri,sat}') AS weekdays,
       split_part(cron, ' ', 3) LIKE '%L%' AS last_day, cron ~ '^\S+ \S+ [^*]\S* \S+ [^*]' AS either_day, false AS elapsed
  FROM (SELECT '0 12 ' || days || ' ' || months || ' ' || weekdays AS cron
          FROM unnest(ARRAY['*', '1', '31', 'L', '15,L', '*/2', '13', '29,30', '1-7']) AS days,
               unnest(ARRAY['*', 'feb', '2,4', '*/5', 'nov-dec']) AS months,
               unnest(ARRAY['*', '1-5', 'sun', '7', '*/2', 'fri']) AS weekdays) AS c
 WHERE cron NOT IN ('0 12 31 feb *', '0 12 31 2,4 *', '0 12 31 feb */2', '0 12 31 2,4 */2');
CREATE TABLE noons AS
SELECT l.local, :parts FROM generate_series(timestamp '2023-01-01 12:00', '2030-12-31 12:00', '1 day') AS l (local);
CREATE TABLE days_tested AS
SELECT e.cron,
       ARRAY(SELECT t.local AT TIME ZONE 'UTC' FROM noons t WHERE :matches) AS expected,
       ARRAY(SELECT n FROM queue_jobs.next_runs(e.cron, 'UTC', '2023-01-01 00:00+00', 3000) AS n WHERE n < '2031-01-01 00:00+00') AS got
  FROM day_expression e;
SELECT count(*) AS cases, sum(cardinality(expected)) AS days FROM days_tested;
SELECT * FROM days_tested WHERE expected <> got;
SELECT cron_problem(cron) FROM unnest(ARRAY['0 12 31 feb *', '0 12 31 2,4 *', '0 12 31 feb */2', '0 12 31 2,4 */2']) AS cron;

DROP TABLE by_hand, expression, clock_change, shown, passed, tested, day_expression, noons, days_tested;
DROP FUNCTION field, cron_problem;
