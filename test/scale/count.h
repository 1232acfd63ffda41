/*
 * count.h
 *		Compiled into each file of the counting server and of queue_jobs (gcc -include): counts each spinlock where it
 *		is taken, and how long it is held.
 */
#ifndef SCALE_COUNT_H
#define SCALE_COUNT_H

#define SCALE_BUCKETS 32		/* of cycles, by their logarithm */

typedef struct ScaleSite
{
	const char *file;
	int			line;
	unsigned int taken;
	unsigned int missed;		/* another process had it */
	unsigned int held[SCALE_BUCKETS];
	struct ScaleSite *next;
} ScaleSite;

extern void scale_spin_taken(ScaleSite *site, int missed);
extern void scale_spin_free(void);

/* As s_lock.h has them. */
#define S_LOCK(lock) \
	({ \
		static ScaleSite scale_site = {.file = __FILE__, .line = __LINE__}; \
		int scale_missed = TAS(lock) != 0; \
		if (scale_missed) \
			s_lock((lock), __FILE__, __LINE__, __func__); \
		scale_spin_taken(&scale_site, scale_missed); \
		0; \
	})

#define S_UNLOCK(lock) \
	do { scale_spin_free(); __asm__ __volatile__("" : : : "memory"); *(lock) = 0; } while (0)

#endif
