/*
 * fuzz.h
 *		Fuzzing of the pure parsers with libFuzzer: make fuzz. Each program has the function that libFuzzer calls.
 */
#ifndef QUEUE_JOBS_FUZZ_H
#define QUEUE_JOBS_FUZZ_H

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* To be called at the end of each input. */
extern void fuzz_free_all(void);

/* What must hold for every input. */
#define ALWAYS(condition) do { if (!(condition)) abort(); } while (0)

#endif
