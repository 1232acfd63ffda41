/*
 * table_guard.h
 *		Only superusers and the extension's owner write the extension's tables by SQL.
 *
 * A role with pg_write_all_data may write every table, but a row in ours is a job, a schedule or a definition
 * of any role: to write one is to run code as that role. Triggers refuse the statement before it does
 * anything, and the row where a subscription applies it.
 */
#ifndef QUEUE_JOBS_TABLE_GUARD_H
#define QUEUE_JOBS_TABLE_GUARD_H

#include "nodes/nodes.h"

/* ERROR for a LOCK TABLE by which another role would keep jobs from being enqueued and run. */
extern void table_guard_check_lock(Node *statement);

#endif
