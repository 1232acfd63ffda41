-- What two commits take, with next to nothing in them: no queue that commits its claim, and then its work, can be faster.
SELECT pg_logical_emit_message(true, 'bench', '');
SELECT pg_logical_emit_message(true, 'bench', '');
