/*
 * compat.h
 *		Differences between PostgreSQL 15, 17 and 18, and nothing else: the rest of the code is written for
 *		the newest interface.
 */
#ifndef QUEUE_JOBS_COMPAT_H
#define QUEUE_JOBS_COMPAT_H

#include "access/genam.h"
#include "access/parallel.h"
#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "executor/executor.h"
#include "storage/proc.h"
#if PG_VERSION_NUM < 170000
#include "storage/sinvaladt.h"
#else
#include "storage/procarray.h"
#endif
#include "utils/acl.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000
#error "queue_jobs needs PostgreSQL 15 or later"
#endif

#if PG_VERSION_NUM < 160000
typedef bool TU_UpdateIndexes;

#define TU_None false
#define QjOnlySummarizing(update_indexes) false
#define QjInsertIndexTuples(rri, slot, estate, update, onlySummarizing) \
	((void) (onlySummarizing), ExecInsertIndexTuples((rri), (slot), (estate), (update), false, NULL, NIL))
#define QjFunctionAclCheck(oid, role, mode) pg_proc_aclcheck((oid), (role), (mode))
#define QjDatabaseAclCheck(oid, role, mode) pg_database_aclcheck((oid), (role), (mode))
#define QjSchemaAclCheck(oid, role, mode) pg_namespace_aclcheck((oid), (role), (mode))
#define QjDatabaseOwnerCheck(oid, role) pg_database_ownercheck((oid), (role))
#define QjExtensionOwnerCheck(oid, role) pg_extension_ownercheck((oid), (role))
#define QjRelationOwnerCheck(oid, role) pg_class_ownercheck((oid), (role))
#define QjLocalBackendStatus(index) pgstat_fetch_stat_local_beentry(index)
#define QjQualifiedNameList(string) stringToQualifiedNameList(string)
#else
#define QjOnlySummarizing(update_indexes) ((update_indexes) == TU_Summarizing)
#define QjInsertIndexTuples(rri, slot, estate, update, onlySummarizing) \
	ExecInsertIndexTuples((rri), (slot), (estate), (update), false, NULL, NIL, (onlySummarizing))
#define QjFunctionAclCheck(oid, role, mode) object_aclcheck(ProcedureRelationId, (oid), (role), (mode))
#define QjDatabaseAclCheck(oid, role, mode) object_aclcheck(DatabaseRelationId, (oid), (role), (mode))
#define QjSchemaAclCheck(oid, role, mode) object_aclcheck(NamespaceRelationId, (oid), (role), (mode))
#define QjDatabaseOwnerCheck(oid, role) object_ownercheck(DatabaseRelationId, (oid), (role))
#define QjExtensionOwnerCheck(oid, role) object_ownercheck(ExtensionRelationId, (oid), (role))
#define QjRelationOwnerCheck(oid, role) object_ownercheck(RelationRelationId, (oid), (role))
#define QjLocalBackendStatus(index) pgstat_get_local_beentry_by_index(index)
#define QjQualifiedNameList(string) stringToQualifiedNameList((string), NULL)
#endif

/*
 * QjNoTransactionTimeout: options of a session on a server of the same major version, in which a transaction
 * may take as long as it likes.
 */
#if PG_VERSION_NUM < 170000
#define QjMyProcNumber (MyProc->pgprocno)
#define QjVirtualTransactionProcess(vxid) BackendIdGetProc((vxid).backendId)
#define QjLocalTransaction(process) ((process)->lxid)
#define QjLockHeldByMe(tag, mode) LockHeldByMe((tag), (mode))
#define QjNoTransactionTimeout ""
#else
#define QjMyProcNumber MyProcNumber
#define QjVirtualTransactionProcess(vxid) ProcNumberGetProc((vxid).procNumber)
#define QjLocalTransaction(process) ((process)->vxid.lxid)
#define QjLockHeldByMe(tag, mode) LockHeldByMe((tag), (mode), false)
#define QjNoTransactionTimeout " -c transaction_timeout=0"
#endif

#if PG_VERSION_NUM < 180000
#define QjBeginIndexScan(heap, index, snapshot, nkeys) \
	index_beginscan((heap), (index), (snapshot), (nkeys), 0)
#define QjPrimaryKeyIndex(rel) RelationGetPrimaryKeyIndex(rel)
#define QjPortalRun(portal, top_level, receiver, completion) \
	PortalRun((portal), FETCH_ALL, (top_level), true, (receiver), (receiver), (completion))
#else
#define QjBeginIndexScan(heap, index, snapshot, nkeys) \
	index_beginscan((heap), (index), (snapshot), NULL, (nkeys), 0)
#define QjPrimaryKeyIndex(rel) RelationGetPrimaryKeyIndex((rel), false)
#define QjPortalRun(portal, top_level, receiver, completion) \
	PortalRun((portal), FETCH_ALL, (top_level), (receiver), (receiver), (completion))
#endif

/*
 * What now() says for the rest of the transaction. The server has a function for it, which is asserted to be
 * called by parallel workers only, as that is what it was made for.
 */
static inline void
QjSetTransactionStart(TimestampTz now)
{
	int			saved = ParallelWorkerNumber;

	ParallelWorkerNumber = 0;
	SetParallelStartTimestamps(now, now);
	ParallelWorkerNumber = saved;
}

#endif
