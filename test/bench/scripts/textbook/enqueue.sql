INSERT INTO textbook.job (args) VALUES ('{"n": 1}');
