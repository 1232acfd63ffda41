SET ROLE app;
SET client_min_messages = warning;
SELECT pgq.drop_queue('bench', true);
SELECT pgq.create_queue('bench'), pgq.register_consumer('bench', 'bench');
