CREATE EXTENSION pgq;
GRANT pgq_admin TO app;
SET ROLE app;
SELECT pgq.create_queue('bench'), pgq.register_consumer('bench', 'bench');
