/*
 * table_changes.h
 *		What the content of the database's tables differs by between two points of one transaction, by that
 *		transaction's own doing.
 *
 * Nothing is copied at the first point: both states can still be seen at the second, by what each command of
 * the transaction could see. Only a table that was rewritten meanwhile (TRUNCATE) has lost its earlier state:
 * changes_since() then asks for the work to be undone and done again, with the table named to
 * changes_begin().
 */
#ifndef QUEUE_JOBS_TABLE_CHANGES_H
#define QUEUE_JOBS_TABLE_CHANGES_H

#include "lib/stringinfo.h"
#include "nodes/pg_list.h"

typedef struct ChangesPoint ChangesPoint;

/*
 * The first point. "rewritten": names of tables (they may be created again, with other OIDs) whose content is
 * to be copied now.
 */
extern ChangesPoint *changes_begin(List *rewritten);

/*
 * Appends a line for each table that differs now: which rows were added, changed or removed. Rows that the
 * current user may not read are counted only. Returns the names of tables that cannot be compared, for having
 * been rewritten.
 */
extern List *changes_since(ChangesPoint *point, StringInfo report);

extern void changes_end(ChangesPoint *point);

#endif
