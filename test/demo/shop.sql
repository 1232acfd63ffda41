CREATE EXTENSION queue_jobs;

-- The application, as anybody would write it.
CREATE SCHEMA app;
CREATE TABLE app.users (id int PRIMARY KEY, name text NOT NULL, email text NOT NULL);
CREATE TABLE app.orders (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id int NOT NULL REFERENCES app.users,
    amount numeric NOT NULL,
    status text NOT NULL DEFAULT 'placed');
-- No unique constraint on order_id, so that a second charge would show.
CREATE TABLE app.charges (order_id int NOT NULL REFERENCES app.orders, amount numeric NOT NULL);
CREATE TABLE app.outbox (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id int NOT NULL REFERENCES app.orders,
    recipient text NOT NULL,
    subject text NOT NULL,
    times_sent int NOT NULL DEFAULT 0);

INSERT INTO app.users
SELECT i, 'User ' || i, format('user%s@example.com', i) FROM generate_series(1, 100) AS i;

-- The handlers: plain functions. Their parameters are filled from the job's args.
CREATE FUNCTION app.charge_order(order_id int) RETURNS void LANGUAGE sql AS $$
    INSERT INTO app.charges SELECT id, amount FROM app.orders WHERE id = $1;
    UPDATE app.orders SET status = 'charged' WHERE id = $1;
$$;

CREATE FUNCTION app.send_mail(mail_id int) RETURNS text LANGUAGE sql AS $$
    UPDATE app.outbox SET times_sent = times_sent + 1 WHERE id = $1 RETURNING 'sent to ' || recipient;
$$;

CREATE FUNCTION app.sync_crm(user_id int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF user_id % 10 = 0 THEN
        RAISE EXCEPTION 'the CRM knows no user %', user_id;
    END IF;
END
$$;

CREATE FUNCTION app.soon(attempt int) RETURNS interval LANGUAGE sql AS $$ SELECT interval '50 ms' $$;

-- The workers: which function does which kind of job, and how.
SELECT queue_jobs.define_worker('charge_order', 'app.charge_order') \g /dev/null
SELECT queue_jobs.define_worker('send_mail', 'app.send_mail') \g /dev/null
SELECT queue_jobs.define_worker('sync_crm', 'app.sync_crm', max_retries => 2, retry_backoff => 'app.soon') \g /dev/null

-- An order, its mail, and the jobs for both, in one transaction.
CREATE FUNCTION app.place_order(buyer int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    new_order int;
    new_mail int;
BEGIN
    INSERT INTO app.orders (user_id, amount) VALUES (buyer, 10 + buyer) RETURNING id INTO new_order;
    PERFORM queue_jobs.enqueue('charge_order', jsonb_build_object('order_id', new_order));

    INSERT INTO app.outbox (order_id, recipient, subject)
    SELECT new_order, email, format('Thank you, %s, for order %s', name, new_order) FROM app.users WHERE id = buyer
    RETURNING id INTO new_mail;
    PERFORM queue_jobs.enqueue('send_mail', jsonb_build_object('mail_id', new_mail));
END
$$;

-- n orders, a transaction each; and every user is synchronised once.
CREATE PROCEDURE app.place_orders(n int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. n LOOP
        PERFORM app.place_order(1 + i % 100);
        COMMIT;
    END LOOP;
    PERFORM queue_jobs.enqueue('sync_crm', jsonb_build_object('user_id', id)) FROM app.users;
END
$$;

-- What must be true in the end, whatever happened on the way.
CREATE VIEW app.verdict AS
SELECT orders, charged_once, sent_once, dead, orders = charged_once AND orders = sent_once AND orders = 2000 AND dead = 10 AS ok
FROM (SELECT count(*) AS orders FROM app.orders) AS o,
     (SELECT count(*) AS charged_once FROM (SELECT FROM app.charges GROUP BY order_id HAVING count(*) = 1) AS c) AS c,
     (SELECT count(*) AS sent_once FROM app.outbox WHERE times_sent = 1) AS m,
     (SELECT count(*) AS dead FROM queue_jobs.job WHERE state = 'dead') AS d;
