/*
 * module.c
 *		SQL function scale_restart(): all processes of the counting server begin at zero.
 */
#include "postgres.h"

#include "fmgr.h"

PG_MODULE_MAGIC;

extern int *scale_rounds;

PG_FUNCTION_INFO_V1(scale_restart);

Datum
scale_restart(PG_FUNCTION_ARGS)
{
	(*scale_rounds)++;
	PG_RETURN_VOID();
}
