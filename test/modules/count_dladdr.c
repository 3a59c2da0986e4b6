/*-------------------------------------------------------------------------
 *
 * count_dladdr.c
 *		Writes a line into the server's log for each call of dladdr(), which may
 *		look at all symbols of the server; for LD_PRELOAD.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>
#include <unistd.h>

int
dladdr(const void *address, Dl_info *info)
{
	static const char line[] = "dladdr was called\n";
	int			(*next) (const void *, Dl_info *) = dlsym(RTLD_NEXT, "dladdr");

	if (write(STDERR_FILENO, line, sizeof(line) - 1) < 0)
		return 0;
	return next(address, info);
}
