-- Each client deletes rows of its own, one a transaction: ids base + 1 to base + clients * each.
\set i :i + 1
\set id :base + :client_id * :each + :i
DELETE FROM raw.job WHERE id = :id;
