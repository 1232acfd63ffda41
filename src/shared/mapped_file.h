/*
 * mapped_file.h
 *		Small files that are mapped into memory, so that what is in them survives the server's processes.
 *
 * They are not synced: a crash of the machine may leave any of it behind.
 */
#ifndef QUEUE_JOBS_MAPPED_FILE_H
#define QUEUE_JOBS_MAPPED_FILE_H

/*
 * A file in memory, the same for all processes; it is made if need be, and one that is shorter is written
 * again, all zero. NULL, and a line in the log with that detail, if it cannot be had.
 */
extern void *mapped_file(const char *path, Size size, const char *detail);

#endif
