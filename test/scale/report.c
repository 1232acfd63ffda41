/*
 * report.c
 *		Included in the counting server's lwlock.c: what each process takes of what all share.
 *
 * Each process counts for itself, and writes a file into the folder "scale" of the data directory when it exits.
 * scale_restart(), in module.c, makes all processes begin at zero: so what a session does once is not counted.
 */
#include <sys/mman.h>
#include <sys/stat.h>

#include "postmaster/bgworker_internals.h"
#include "storage/buf_internals.h"

#define SCALE_LOCKS 131072		/* a power of 2 */
#define SCALE_PROBES 512
#define SCALE_HELD 256

typedef struct ScaleLock
{
	const void *address;		/* of an LWLock, or of a buffer that is pinned; NULL: none yet */
	uint16		tranche;		/* noted, for a lock in dynamic memory is gone when we report */
	uint32		shared;			/* for a buffer: pins */
	uint32		exclusive;
	uint32		blocked;
	uint32		held[SCALE_BUCKETS];	/* exclusively, in cycles */
} ScaleLock;

typedef struct ScaleHeld
{
	const void *address;
	uint64		since;
} ScaleHeld;

static ScaleLock scale_locks[SCALE_LOCKS];
static ScaleHeld scale_held[SCALE_HELD];
static ScaleSite *scale_sites = NULL;
static ScaleSite *scale_spinning = NULL;	/* the spinlock that is held: one at a time */
static uint64 scale_spinning_since;
static int	scale_round = 0;

int		   *scale_rounds = NULL;	/* shared by all processes */

void		scale_pinned(const void *buffer);

static uint64
scale_now(void)
{
	return __builtin_ia32_rdtsc();
}

static void
scale_add_time(uint32 *held, uint64 since)
{
	uint64		cycles = scale_now() - since;
	int			bucket = cycles == 0 ? 0 : 63 - __builtin_clzll(cycles);

	held[Min(bucket, SCALE_BUCKETS - 1)]++;
}

static void
scale_reset(void)
{
	memset(scale_locks, 0, sizeof(scale_locks));
	for (ScaleSite *site = scale_sites; site != NULL; site = site->next)
	{
		site->taken = site->missed = 0;
		memset(site->held, 0, sizeof(site->held));
	}
}

static void
scale_look(void)
{
	if (scale_rounds == NULL || *scale_rounds == scale_round)
		return;
	scale_round = *scale_rounds;
	scale_reset();
}

static ScaleLock *
scale_lock(const void *address)
{
	uint32		place = (uint32) (((uint64) (uintptr_t) address >> 3) * UINT64CONST(0x9E3779B97F4A7C15) >> 40);

	scale_look();
	for (int probes = 0;; probes++)
	{
		ScaleLock  *lock = &scale_locks[(place + probes) & (SCALE_LOCKS - 1)];

		if (lock->address == NULL)
			lock->address = address;
		/* if there is no room left, it is counted as another: as a buffer mostly, of which there are so many */
		if (lock->address == address || probes == SCALE_PROBES)
			return lock;
	}
}

static void
scale_acquired(LWLock *lock, LWLockMode mode)
{
	ScaleLock  *counted = scale_lock(lock);

	counted->tranche = lock->tranche;
	if (mode != LW_EXCLUSIVE)
	{
		counted->shared++;
		return;
	}
	counted->exclusive++;
	for (int i = 0; i < SCALE_HELD; i++)
		if (scale_held[i].address == NULL)
		{
			scale_held[i] = (ScaleHeld) {.address = lock,.since = scale_now()};
			return;
		}
}

static void
scale_released(LWLock *lock, LWLockMode mode)
{
	for (int i = 0; mode == LW_EXCLUSIVE && i < SCALE_HELD; i++)
		if (scale_held[i].address == lock)
		{
			scale_add_time(scale_lock(lock)->held, scale_held[i].since);
			scale_held[i].address = NULL;
			return;
		}
}

static void
scale_blocked(LWLock *lock)
{
	ScaleLock  *counted = scale_lock(lock);

	counted->tranche = lock->tranche;
	counted->blocked++;
}

void
scale_pinned(const void *buffer)
{
	scale_lock(buffer)->shared++;
}

void
scale_spin_taken(ScaleSite *site, int missed)
{
	scale_look();
	if (site->next == NULL && scale_sites != site)
	{
		static ScaleSite last = {.file = "",.line = 0};

		site->next = scale_sites == NULL ? &last : scale_sites;
		scale_sites = site;
	}
	site->taken++;
	site->missed += missed;
	scale_spinning = site;
	scale_spinning_since = scale_now();
}

void
scale_spin_free(void)
{
	if (scale_spinning != NULL)
		scale_add_time(scale_spinning->held, scale_spinning_since);
	scale_spinning = NULL;
}

static void
scale_print_times(FILE *file, const uint32 *held)
{
	for (int i = 0; i < SCALE_BUCKETS; i++)
		fprintf(file, "%s%u", i == 0 ? "\t" : ",", held[i]);
	fprintf(file, "\n");
}

static void
scale_print_lock(FILE *file, const ScaleLock *lock)
{
	const char *first = (const char *) BufferDescriptors;
	int64		buffer = ((const char *) lock->address - first) / (int64) sizeof(BufferDescPadded);
	bool		in_buffer = (const char *) lock->address >= first && buffer < NBuffers;
	bool		pin = in_buffer && lock->address == (const void *) GetBufferDescriptor(buffer);

	fprintf(file, "%s\t%s\t%p", pin ? "pin" : "lwlock", pin ? "" : GetLWTrancheName(lock->tranche), lock->address);
	if (in_buffer)
	{
		const BufferTag *tag = &GetBufferDescriptor(buffer)->tag;

		fprintf(file, "\t%u.%d.%u", tag->rnode.relNode, tag->forkNum, tag->blockNum);
	}
	else
		fprintf(file, "\t");
	fprintf(file, "\t%u\t%u\t%u", lock->shared, lock->exclusive, lock->blocked);
	scale_print_times(file, lock->held);
}

static void
scale_print(int code, Datum argument)
{
	char		path[MAXPGPATH];
	FILE	   *file;

	scale_look();
	snprintf(path, sizeof(path), "scale/%d", MyProcPid);
	file = fopen(path, "w");
	if (file == NULL)
		return;
	fprintf(file, "process\t%s\n", MyBgworkerEntry != NULL ? MyBgworkerEntry->bgw_type : GetBackendTypeDesc(MyBackendType));
	for (int i = 0; i < SCALE_LOCKS; i++)
		if (scale_locks[i].address != NULL)
			scale_print_lock(file, &scale_locks[i]);
	for (ScaleSite *site = scale_sites; site != NULL; site = site->next)
	{
		if (site->taken == 0)
			continue;
		fprintf(file, "spin\t%s\t%d\t\t0\t%u\t%u", strrchr(site->file, '/') ? strrchr(site->file, '/') + 1 : site->file,
				site->line, site->taken, site->missed);
		scale_print_times(file, site->held);
	}
	fclose(file);
}

/* Called by the postmaster, and after a crash once more. */
static void
scale_create(void)
{
	if (scale_rounds != NULL)
		return;
	scale_rounds = mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	mkdir("scale", 0700);
}

/* Called when a process is ready to take locks. */
static void
scale_init(void)
{
	if (!IsUnderPostmaster)
		return;
	scale_round = *scale_rounds;
	scale_reset();
	on_shmem_exit(scale_print, (Datum) 0);
}
