# attribute_numbers.awk
#	Reads the parts of the install script, and writes a header with the number of each column of a table (from 1, as the server's own Anum_ constants) and
#	of each parameter of a function (from 0), and how many there are, so that they are defined once, in SQL.
#
# Tables are written a column a line, and so are the parameters of the functions that C looks at by number.
BEGIN {
	print "/* Made by attribute_numbers.awk from the parts of the install script. Do not edit. */"
	print "#ifndef QUEUE_JOBS_ATTRIBUTE_NUMBERS_H\n#define QUEUE_JOBS_ATTRIBUTE_NUMBERS_H\n"
}

function name_of(qualified)
{
	sub(/^queue_jobs\./, "", qualified)
	sub(/[^a-z_].*$/, "", qualified)
	return qualified
}

/^(CREATE|ALTER) TABLE queue_jobs\./ { table = name_of($3); if (!(table in columns)) { columns[table] = ""; tables[++ntables] = table } }
/^CREATE FUNCTION queue_jobs\.[a-z_]+\($/ { of_function = name_of($3); parameters = 0; print "enum\n{" }
/^(\)|ALTER|CREATE|COMMENT|--)/ && table != "" && !/^(CREATE|ALTER) TABLE/ { table = "" }

table != "" && /^    ADD COLUMN / { columns[table] = columns[table] " " $3 }
table != "" && /^    [a-z_]+ [a-z]/ { columns[table] = columns[table] " " $1 }

of_function != "" && /^RETURNS/ { printf "\tNargs_%s = %d\n};\n\n", of_function, parameters; of_function = "" }
of_function != "" && /^    [a-z_]+ [a-z]/ { printf "\tArg_%s_%s = %d,\n", of_function, $1, parameters++ }

END {
	for (i = 1; i <= ntables; i++) {
		count = split(columns[tables[i]], column, " ")
		if (count > 0)
			print "enum\n{"
		for (number = 1; number <= count; number++)
			printf "\tAnum_%s_%s = %d,\n", tables[i], column[number], number
		if (count > 0)
			printf "\tNatts_%s = %d\n};\n\n", tables[i], count
	}
	print "#endif"
}
