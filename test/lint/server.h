/* What cppcheck, which does not read the server's headers, has to know of them. */
#define PG_VERSION_NUM 150000
#define foreach(cell, list) for (ListCell *cell = list_head(list); cell != 0; cell = lnext(list, cell))
#define ereport(level, ...) do { if ((level) >= ERROR) abort(); } while (0)
#define elog(level, ...) do { if ((level) >= ERROR) abort(); } while (0)
#define ERROR 21
#define CppAsString2(x) "x"
#define FATAL 22
#define PANIC 23
