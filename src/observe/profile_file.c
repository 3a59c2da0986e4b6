/*-------------------------------------------------------------------------
 *
 * profile_file.c
 *		Where the records of function profiles are kept.
 *
 * Each server has a directory of its own within pg_lookahead.profile_directory,
 * named by its system identifier and the inode of its data directory: a
 * standby shares the first with its primary, and not the second.
 *
 * The server's user may write to places where others put symbolic links, so
 * none is ever followed: directories are opened one component at a time with
 * O_NOFOLLOW, and a record is a new file (O_EXCL).  It gets its name when it
 * is complete.  Files are counted under a lock on the directory, so that there
 * are never more than pg_lookahead.profile_max_files; a record that would be
 * larger than MAX_SIZE is not kept.
 *
 * Nothing here raises an error: a process that exits has nobody to catch it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "common/file_perm.h"
#include "compat.h"
#include "miscadmin.h"
#include "observe/profile.h"
#include "observe/profile_internal.h"
#include "utils/builtins.h"

/* Of one record, in bytes: several times what one can come to. */
#define MAX_SIZE (512 * 1024)

/* What the name of a record has at its end until it is complete. */
#define UNFINISHED ".new"

PG_FUNCTION_INFO_V1(lookahead_function_profile_directory);
PG_FUNCTION_INFO_V1(lookahead_function_profile_delete);

char *
ProfileFileDirectory(void)
{
	struct stat data;

	if (lookahead_profile_directory == NULL ||
		lookahead_profile_directory[0] == '\0' || stat(DataDir, &data) != 0)
		return NULL;
	return psprintf("%s/" UINT64_FORMAT "-%llx", lookahead_profile_directory,
					GetSystemIdentifier(), (unsigned long long) data.st_ino);
}

/*
 * Open a directory without following symbolic links, and make what is missing
 * of it.  Returns a descriptor, or -1, with errno and the length of the part
 * of the path that was the matter.
 */
static int
open_directory(const char *path, int *failed_at)
{
	int			flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int			fd = open(path[0] == '/' ? "/" : DataDir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *rest = path;

	*failed_at = 1;
	while (fd >= 0)
	{
		char		component[MAXPGPATH];
		size_t		length;
		int			next;
		int			saved_errno;

		rest += strspn(rest, "/");
		length = strcspn(rest, "/");
		if (length == 0)
			break;
		*failed_at = (int) (rest + length - path);
		snprintf(component, sizeof(component), "%.*s", (int) length, rest);
		next = openat(fd, component, flags);
		if (next < 0 && errno == ENOENT &&
			mkdirat(fd, component, pg_dir_create_mode) == 0)
			next = openat(fd, component, flags);
		saved_errno = errno;
		close(fd);
		errno = saved_errno;
		fd = next;
		rest += length;
	}
	return fd;
}

static bool
has_suffix(const char *name, const char *suffix)
{
	size_t		length = strlen(name);

	return length > strlen(suffix) &&
		strcmp(name + length - strlen(suffix), suffix) == 0;
}

/*
 * How many files a directory has, -1 if that cannot be told.  While it is
 * locked, an unfinished file is that of a process that was killed: those are
 * removed.
 */
static int
count_files(int fd)
{
	int			own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR		   *dir = own >= 0 ? fdopendir(own) : NULL;
	struct dirent *entry;
	int			n = 0;

	if (dir == NULL)
	{
		if (own >= 0)
			close(own);
		return -1;
	}
	while ((entry = readdir(dir)) != NULL)
	{
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (!has_suffix(entry->d_name, UNFINISHED) ||
			unlinkat(fd, entry->d_name, 0) != 0)
			n++;
	}
	closedir(dir);
	return n;
}

static bool
write_all(int fd, const char *data, int length)
{
	while (length > 0)
	{
		ssize_t		written = write(fd, data, length);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return false;
		data += written;
		length -= written;
	}
	return true;
}

/* Put a record into a directory; false, with errno, if that fails. */
static bool
write_record(int directory, StringInfo json)
{
	char		name[MAXPGPATH];
	char		unfinished[MAXPGPATH];
	int			fd;
	bool		good;
	int			saved_errno;

	/* by its time, for people; a process number may come again */
	snprintf(name, sizeof(name), "%016llx-%d.json",
			 (unsigned long long) MyStartTimestamp, MyProcPid);
	snprintf(unfinished, sizeof(unfinished), "%s" UNFINISHED, name);
	fd = openat(directory, unfinished,
				O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
				pg_file_create_mode);
	if (fd < 0)
		return false;
	errno = 0;
	good = write_all(fd, json->data, json->len);
	good = close(fd) == 0 && good;
	/* unlike a rename, this replaces nothing */
	good = good && linkat(directory, unfinished, directory, name, 0) == 0;
	saved_errno = errno;
	unlinkat(directory, unfinished, 0);
	errno = saved_errno;
	return good;
}

char *
ProfileFileWrite(StringInfo json)
{
	char	   *path = ProfileFileDirectory();
	int			failed_at;
	int			directory;
	int			files;
	char	   *problem = NULL;

	if (path == NULL)
		return NULL;
	if (json->len > MAX_SIZE)
		return psprintf("a record of %d bytes is too large", json->len);
	directory = open_directory(path, &failed_at);
	if (directory < 0)
		return psprintf("cannot open directory \"%.*s\": %s",
						failed_at, path,
						errno == ELOOP || errno == ENOTDIR ?
						"it is no directory, or a symbolic link, which is not followed" :
						strerror(errno));
	while (flock(directory, LOCK_EX) != 0 && errno == EINTR)
		;
	files = count_files(directory);
	if (files < 0)
		problem = psprintf("cannot read directory \"%s\": %s", path, strerror(errno));
	else if (files >= lookahead_profile_max_files)
		problem = psprintf("directory \"%s\" has %d files, pg_lookahead.profile_max_files is %d",
						   path, files, lookahead_profile_max_files);
	else if (!write_record(directory, json))
		problem = psprintf("cannot write to directory \"%s\": %s", path, strerror(errno));
	close(directory);
	return problem;
}

/*
 * lookahead.function_profile_directory() returns text
 *
 * Where this server's records are, or NULL if none are kept.
 */
Datum
lookahead_function_profile_directory(PG_FUNCTION_ARGS)
{
	char	   *path = ProfileFileDirectory();

	if (path == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(path));
}

/*
 * lookahead.function_profile_delete(name text) returns boolean
 *
 * Removes one of this server's records; false if there is none of this name.
 */
Datum
lookahead_function_profile_delete(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *path = ProfileFileDirectory();
	int			failed_at;
	int			directory;
	bool		good;
	int			saved_errno;

	if (strchr(name, '/') != NULL || !has_suffix(name, ".json"))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is not the name of a function profile", name),
				 errhint("Names are those of the files in lookahead.function_profile_directory().")));
	if (path == NULL)
		PG_RETURN_BOOL(false);
	directory = open_directory(path, &failed_at);
	good = directory >= 0 && unlinkat(directory, name, 0) == 0;
	saved_errno = errno;
	if (directory >= 0)
		close(directory);
	errno = saved_errno;
	if (!good && errno != ENOENT)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not remove function profile \"%s\" in \"%s\": %m",
						name, path)));
	PG_RETURN_BOOL(good);
}
