/*
 * mapped_file.c
 *		Small files that are mapped into memory; see mapped_file.h.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "mapped_file.h"
#include "storage/fd.h"

/* All of the file is written once, so that no store meets a full disk. */
static bool
fill_file(int file, Size size)
{
	char	   *zeros;
	bool		filled;

	if (lseek(file, 0, SEEK_END) >= (off_t) size)
		return true;
	zeros = palloc0(size);
	filled = pwrite(file, zeros, size, 0) == (ssize_t) size;
	pfree(zeros);
	return filled;
}

void *
mapped_file(const char *path, Size size, const char *detail)
{
	int			file = OpenTransientFilePerm(path, O_RDWR | O_CREAT | PG_BINARY, pg_file_create_mode);
	void	   *address = MAP_FAILED;

	if (file >= 0 && fill_file(file, size))
		address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (address == MAP_FAILED)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not map file \"%s\": %m", path),
				 errdetail("%s", detail)));
	if (file >= 0)
		CloseTransientFile(file);
	return address == MAP_FAILED ? NULL : address;
}
