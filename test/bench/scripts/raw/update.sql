\set id random(1, 100000)
UPDATE raw.counter SET n = n + 1 WHERE id = :id;
