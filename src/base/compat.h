/*
 * compat.h
 *		Differences between PostgreSQL 15, 17, 18 and 19: the rest of the code is written for the newest
 *		interface. Also what the server has no function for that we may call: QjSetTransactionStart().
 */
#ifndef QUEUE_JOBS_COMPAT_H
#define QUEUE_JOBS_COMPAT_H

#include "access/genam.h"
#include "access/parallel.h"
#include "access/tableam.h"
#include "catalog/namespace.h"
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
#include "utils/jsonb.h"
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
#if PG_VERSION_NUM < 190000
#define QjInsertIndexTuples(rri, slot, estate, update, onlySummarizing) \
	ExecInsertIndexTuples((rri), (slot), (estate), (update), false, NULL, NIL, (onlySummarizing))
#else
#define QjInsertIndexTuples(rri, slot, estate, update, onlySummarizing) \
	ExecInsertIndexTuples((rri), (estate), \
						  ((update) ? EIIT_IS_UPDATE : 0) | ((onlySummarizing) ? EIIT_ONLY_SUMMARIZING : 0), \
						  (slot), NIL, NULL)
#endif
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
#define QjTransactionTimedOut() false
#else
#define QjMyProcNumber MyProcNumber
#define QjVirtualTransactionProcess(vxid) ProcNumberGetProc((vxid).procNumber)
#define QjLocalTransaction(process) ((process)->vxid.lxid)
#define QjLockHeldByMe(tag, mode) LockHeldByMe((tag), (mode), false)
#define QjNoTransactionTimeout " -c transaction_timeout=0"
#define QjTransactionTimedOut() get_timeout_indicator(TRANSACTION_TIMEOUT, false)
#endif

#if PG_VERSION_NUM < 180000
#define QjBeginIndexScan(heap, index, snapshot, nkeys) \
	index_beginscan((heap), (index), (snapshot), (nkeys), 0)
#define QjPrimaryKeyIndex(rel) RelationGetPrimaryKeyIndex(rel)
#define QjPortalRun(portal, top_level, receiver, completion) \
	PortalRun((portal), FETCH_ALL, (top_level), true, (receiver), (receiver), (completion))
#else
#if PG_VERSION_NUM < 190000
#define QjBeginIndexScan(heap, index, snapshot, nkeys) \
	index_beginscan((heap), (index), (snapshot), NULL, (nkeys), 0)
#else
#define QjBeginIndexScan(heap, index, snapshot, nkeys) \
	index_beginscan((heap), (index), (snapshot), NULL, (nkeys), 0, SO_NONE)
#endif
#define QjPrimaryKeyIndex(rel) RelationGetPrimaryKeyIndex((rel), false)
#define QjPortalRun(portal, top_level, receiver, completion) \
	PortalRun((portal), FETCH_ALL, (top_level), (receiver), (receiver), (completion))
#endif

/*
 * QjSignal() calls one of the server's signal handlers, for a signal that came to a handler of ours with that
 * siginfo_t. QjPushJsonb() leaves the completed value in state->result.
 */
#if PG_VERSION_NUM < 190000
#define PG_SIG_DFL SIG_DFL
#define QjSignal(handler, signo, info) ((void) (info), handler(signo))
#define QjBeginTableScan(rel, snapshot) table_beginscan((rel), (snapshot), 0, NULL)
#define QjTableDelete(rel, tid, snapshot, wait, failure) \
	table_tuple_delete((rel), (tid), GetCurrentCommandId(true), (snapshot), InvalidSnapshot, (wait), \
					   (failure), false)
#define QjTableUpdate(rel, tid, slot, wait, failure, mode, update_indexes) \
	table_tuple_update((rel), (tid), (slot), GetCurrentCommandId(true), InvalidSnapshot, InvalidSnapshot, \
					   (wait), (failure), (mode), (update_indexes))
#define QjFunctionCandidates(names) FuncnameGetCandidates((names), -1, NIL, false, false, false, true)

typedef struct QjJsonbState
{
	JsonbParseState *parsed;
	JsonbValue *result;
} QjJsonbState;

static inline void
QjPushJsonb(QjJsonbState *state, JsonbIteratorToken token, JsonbValue *value)
{
	state->result = pushJsonbValue(&state->parsed, token, value);
}
#else
#define QjSignal(handler, signo, info) \
	handler((signo), &(pg_signal_info) {.pid = (info)->si_pid, .uid = (info)->si_uid})
#define QjBeginTableScan(rel, snapshot) table_beginscan((rel), (snapshot), 0, NULL, SO_NONE)
#define QjTableDelete(rel, tid, snapshot, wait, failure) \
	table_tuple_delete((rel), (tid), GetCurrentCommandId(true), 0, (snapshot), InvalidSnapshot, (wait), \
					   (failure))
#define QjTableUpdate(rel, tid, slot, wait, failure, mode, update_indexes) \
	table_tuple_update((rel), (tid), (slot), GetCurrentCommandId(true), 0, InvalidSnapshot, InvalidSnapshot, \
					   (wait), (failure), (mode), (update_indexes))

typedef JsonbInState QjJsonbState;

#define QjPushJsonb(state, token, value) pushJsonbValue((state), (token), (value))

static inline FuncCandidateList
QjFunctionCandidates(List *names)
{
	int			found;

	return FuncnameGetCandidates(names, -1, NIL, false, false, false, true, &found);
}
#endif

/*
 * For what a process waits, as pg_stat_activity says from PostgreSQL 17 on; before, it says "Extension".
 * *known is 0 at first, and each name's own.
 */
static inline uint32
QjWaitEvent(uint32 *known, const char *name)
{
#if PG_VERSION_NUM >= 170000
	if (*known == 0)
		*known = WaitEventExtensionNew(name);
	return *known;
#else
	return PG_WAIT_EXTENSION;
#endif
}

/*
 * Sets what now() says for the rest of the transaction. The server's function asserts that a parallel
 * worker calls it, because it was made for those.
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
