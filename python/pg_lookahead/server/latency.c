/*-------------------------------------------------------------------------
 *
 * latency.c
 *		A file system that shows another directory, where every read takes
 *		longer.
 *
 *		latency BACKING MOUNTPOINT DELAY
 *
 * Everything is passed through to the directory BACKING.  Before each read the
 * thread that serves it sleeps for as many microseconds as the first four bytes
 * of the file DELAY say (a native uint32, mapped: write there to change it at
 * any time).  The next four bytes are a cap: reads a second, all files together;
 * 0 is none.  Says "ready" when mounted, and ends when unmounted, or on SIGTERM,
 * SIGINT, SIGHUP or SIGQUIT once nobody uses the mount any more.
 *
 * What it keeps:
 *	- Reads are delayed, not queued: no lock is held while one sleeps, and up to
 *	  MAX_THREADS sleep at once.  Under a cap, each read has its turn a fixed time
 *	  after the one before, or at once if that time is over.
 *	- The kernel's page cache works as over a disk: a read that it answers never
 *	  comes here.  It may cache names and attributes for long, since all changes
 *	  come through this mount.
 *	- A file opened with O_DIRECT is opened so below, too, and goes through
 *	  aligned buffers.
 *	- An unlinked file stays usable through its descriptors: operations on an
 *	  open file go by descriptor, never by name.
 *	- What a user makes belongs to that user, also when root runs this.
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#define FUSE_USE_VERSION 312

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 512
#define MAX_DELAY_US 1000000
#define ALIGNMENT 4096
#define CACHE_SECONDS 3600.0
#define UNMOUNT_SECONDS 5
#define POLL_US 10000

static int	backing;			/* descriptor of the directory shown */
static const char *mountpoint;
static volatile const unsigned int *delay_us;	/* and the cap */
static _Atomic int64_t next_turn;	/* of a read under the cap, in ns */
static sigset_t ending;			/* signals that end us, blocked in all threads */

/* Names come as "/a/b"; below they are relative to the directory shown. */
static const char *
below(const char *path)
{
	return path[1] ? path + 1 : ".";
}

static int
status(int result)
{
	return result < 0 ? -errno : 0;
}

/* Give what was just made to whoever asked for it. */
static int
give(const char *path)
{
	struct fuse_context *caller = fuse_get_context();

	return status(fchownat(backing, below(path), caller->uid, caller->gid, AT_SYMLINK_NOFOLLOW));
}

/* Wait until a cap on reads a second lets this read begin. */
static void
wait_for_turn(void)
{
	unsigned int cap = delay_us[1];
	struct timespec at;
	int64_t		now,
				turn,
				taken;

	if (cap == 0)
		return;
	clock_gettime(CLOCK_MONOTONIC, &at);
	now = (int64_t) at.tv_sec * 1000000000 + at.tv_nsec;
	taken = atomic_load(&next_turn);
	do
		turn = taken > now ? taken : now;
	while (!atomic_compare_exchange_weak(&next_turn, &taken, turn + 1000000000 / cap));
	at.tv_sec = turn / 1000000000;
	at.tv_nsec = turn % 1000000000;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
}

static void
wait_as_told(void)
{
	unsigned int us = *delay_us;
	struct timespec rest;

	wait_for_turn();
	if (us == 0)
		return;
	if (us > MAX_DELAY_US)
		us = MAX_DELAY_US;
	rest.tv_sec = us / 1000000;
	rest.tv_nsec = (long) (us % 1000000) * 1000;
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, &rest) == EINTR)
		;
}

static void *
lat_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
	conn->max_background = MAX_THREADS;
	conn->congestion_threshold = MAX_THREADS;
	config->nullpath_ok = 1;
	config->hard_remove = 1;
	config->use_ino = 1;
	config->kernel_cache = 1;
	config->entry_timeout = CACHE_SECONDS;
	config->attr_timeout = CACHE_SECONDS;
	return NULL;
}

/* Files by name */

static int
lat_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	if (fi)
		return status(fstat((int) fi->fh, st));
	return status(fstatat(backing, below(path), st, AT_SYMLINK_NOFOLLOW));
}

static int
lat_readlink(const char *path, char *target, size_t size)
{
	ssize_t		length = readlinkat(backing, below(path), target, size - 1);

	if (length < 0)
		return -errno;
	target[length] = '\0';
	return 0;
}

static int
lat_mknod(const char *path, mode_t mode, dev_t device)
{
	int			failed = status(mknodat(backing, below(path), mode, device));

	return failed ? failed : give(path);
}

static int
lat_mkdir(const char *path, mode_t mode)
{
	int			failed = status(mkdirat(backing, below(path), mode));

	return failed ? failed : give(path);
}

static int
lat_symlink(const char *target, const char *path)
{
	int			failed = status(symlinkat(target, backing, below(path)));

	return failed ? failed : give(path);
}

static int
lat_link(const char *from, const char *to)
{
	return status(linkat(backing, below(from), backing, below(to), 0));
}

static int
lat_unlink(const char *path)
{
	return status(unlinkat(backing, below(path), 0));
}

static int
lat_rmdir(const char *path)
{
	return status(unlinkat(backing, below(path), AT_REMOVEDIR));
}

static int
lat_rename(const char *from, const char *to, unsigned int flags)
{
	return status(renameat2(backing, below(from), backing, below(to), flags));
}

/* Linux cannot change the mode of a symbolic link, so none comes here. */
static int
lat_chmod(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	if (fi)
		return status(fchmod((int) fi->fh, mode));
	return status(fchmodat(backing, below(path), mode, 0));
}

static int
lat_chown(const char *path, uid_t uid, gid_t gid, struct fuse_file_info *fi)
{
	if (fi)
		return status(fchown((int) fi->fh, uid, gid));
	return status(fchownat(backing, below(path), uid, gid, AT_SYMLINK_NOFOLLOW));
}

static int
lat_utimens(const char *path, const struct timespec times[2], struct fuse_file_info *fi)
{
	if (fi)
		return status(futimens((int) fi->fh, times));
	return status(utimensat(backing, below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int
lat_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
	int			fd,
				failed;

	if (fi)
		return status(ftruncate((int) fi->fh, size));
	fd = openat(backing, below(path), O_WRONLY | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	failed = status(ftruncate(fd, size));
	close(fd);
	return failed;
}

static int
lat_statfs(const char *path, struct statvfs *st)
{
	return status(fstatvfs(backing, st));
}

/* Open files */

static int
lat_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
	int			failed,
				fd = openat(backing, below(path), fi->flags | O_CREAT | O_NOFOLLOW, mode);

	if (fd < 0)
		return -errno;
	failed = give(path);
	if (failed)
	{
		close(fd);
		return failed;
	}
	fi->fh = (uint64_t) fd;
	return 0;
}

static int
lat_open(const char *path, struct fuse_file_info *fi)
{
	int			fd = openat(backing, below(path), fi->flags & ~(O_CREAT | O_EXCL));

	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t) fd;
	return 0;
}

/* The library frees what *answer points to, and the memory in it. */
static int
lat_read(const char *path, struct fuse_bufvec **answer, size_t size, off_t offset,
		 struct fuse_file_info *fi)
{
	struct fuse_bufvec *vector = calloc(1, sizeof(struct fuse_bufvec));
	void	   *memory = NULL;
	ssize_t		got;

	if (vector == NULL || posix_memalign(&memory, ALIGNMENT, size) != 0)
	{
		free(vector);
		return -ENOMEM;
	}
	wait_as_told();
	got = pread((int) fi->fh, memory, size, offset);
	if (got < 0)
	{
		int			failed = -errno;

		free(memory);
		free(vector);
		return failed;
	}
	*vector = FUSE_BUFVEC_INIT((size_t) got);
	vector->buf[0].mem = memory;
	*answer = vector;
	return 0;
}

static int
lat_write(const char *path, const char *data, size_t size, off_t offset, struct fuse_file_info *fi)
{
	void	   *aligned = NULL;
	ssize_t		done;

	if (fi->flags & O_DIRECT)
	{
		if (posix_memalign(&aligned, ALIGNMENT, size) != 0)
			return -ENOMEM;
		memcpy(aligned, data, size);
		data = aligned;
	}
	done = pwrite((int) fi->fh, data, size, offset);
	if (done < 0)
		done = -errno;
	free(aligned);
	return (int) done;
}

static int
lat_fsync(const char *path, int datasync, struct fuse_file_info *fi)
{
	return status(datasync ? fdatasync((int) fi->fh) : fsync((int) fi->fh));
}

static int
lat_fallocate(const char *path, int mode, off_t offset, off_t length, struct fuse_file_info *fi)
{
	return status(fallocate((int) fi->fh, mode, offset, length));
}

static int
lat_release(const char *path, struct fuse_file_info *fi)
{
	close((int) fi->fh);
	return 0;
}

/* Directories: each open one is a descriptor, read from the start whenever asked. */

static int
lat_opendir(const char *path, struct fuse_file_info *fi)
{
	int			fd = openat(backing, below(path), O_RDONLY | O_DIRECTORY);

	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t) fd;
	return 0;
}

static int
lat_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset,
			struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
	int			fd = openat((int) fi->fh, ".", O_RDONLY | O_DIRECTORY);
	DIR		   *directory = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	int			failed = 0;

	if (directory == NULL)
	{
		failed = -errno;
		if (fd >= 0)
			close(fd);
		return failed;
	}
	/* With offsets of zero the library takes all entries at once. */
	while (errno = 0, (entry = readdir(directory)) != NULL)
	{
		struct stat st = {.st_ino = entry->d_ino, .st_mode = (mode_t) entry->d_type << 12};

		if (fill(buffer, entry->d_name, &st, 0, 0) != 0)
		{
			errno = ENOMEM;
			break;
		}
	}
	failed = -errno;
	closedir(directory);
	return failed;
}

static const struct fuse_operations operations = {
	.init = lat_init,
	.getattr = lat_getattr,
	.readlink = lat_readlink,
	.mknod = lat_mknod,
	.mkdir = lat_mkdir,
	.symlink = lat_symlink,
	.link = lat_link,
	.unlink = lat_unlink,
	.rmdir = lat_rmdir,
	.rename = lat_rename,
	.chmod = lat_chmod,
	.chown = lat_chown,
	.utimens = lat_utimens,
	.truncate = lat_truncate,
	.statfs = lat_statfs,
	.create = lat_create,
	.open = lat_open,
	.read_buf = lat_read,
	.write = lat_write,
	.fsync = lat_fsync,
	.fallocate = lat_fallocate,
	.release = lat_release,
	.opendir = lat_opendir,
	.readdir = lat_readdir,
	.releasedir = lat_release,
	.fsyncdir = lat_fsync,
};

/* Life */

static int
try_to_unmount(void)
{
	char	   *command[] = {"fusermount3", "-u", "-q", (char *) mountpoint, NULL};
	pid_t		child;
	int			result;

	if (geteuid() == 0)
		return umount2(mountpoint, UMOUNT_NOFOLLOW);
	if (posix_spawnp(&child, command[0], NULL, NULL, command, environ) != 0 ||
		waitpid(child, &result, 0) != child)
		return -1;
	return result;
}

/*
 * Wait for a signal, then for the mount's last user to be gone, but not for
 * ever: a mount that nobody unmounts would outlive the tool.
 */
static void *
end_when_told(void *argument)
{
	struct fuse *fuse = argument;
	int			number;

	sigwait(&ending, &number);
	for (int tries = 0; tries < UNMOUNT_SECONDS * 1000000 / POLL_US; tries++)
	{
		if (try_to_unmount() == 0)
			return NULL;		/* which ends the loop of main() */
		usleep(POLL_US);
	}
	fuse_unmount(fuse);			/* detaches it, in use or not */
	_exit(1);
}

static int
fail(const char *what, const char *which)
{
	fprintf(stderr, "%s %s: %s\n", what, which, strerror(errno));
	return 1;
}

int
main(int argc, char **argv)
{
	char	   *options[] = {"pg_lookahead", "-o", "default_permissions,allow_other,fsname=pg_lookahead"};
	struct fuse_args args = FUSE_ARGS_INIT(3, options);
	struct fuse_loop_config *loop = fuse_loop_cfg_create();
	struct fuse *fuse;
	pthread_t	ender;
	int			fd;

	if (argc != 4)
	{
		fprintf(stderr, "usage: latency BACKING MOUNTPOINT DELAY\n");
		return 2;
	}
	mountpoint = argv[2];
	backing = open(argv[1], O_PATH | O_DIRECTORY);
	if (backing < 0)
		return fail("cannot open", argv[1]);
	fd = open(argv[3], O_RDONLY);
	if (fd < 0)
		return fail("cannot open", argv[3]);
	delay_us = mmap(NULL, 2 * sizeof(*delay_us), PROT_READ, MAP_SHARED, fd, 0);
	if (delay_us == MAP_FAILED)
		return fail("cannot map", argv[3]);

	/* Others may enter, as far as permissions go, if we are allowed to let them. */
	if (geteuid() != 0)
		options[2] = "default_permissions,fsname=pg_lookahead";
	umask(0);
	prctl(PR_SET_TIMERSLACK, 1000UL);	/* nanoseconds; threads inherit it */
	sigemptyset(&ending);
	sigaddset(&ending, SIGTERM);
	sigaddset(&ending, SIGINT);
	sigaddset(&ending, SIGHUP);
	sigaddset(&ending, SIGQUIT);
	pthread_sigmask(SIG_BLOCK, &ending, NULL);
	signal(SIGPIPE, SIG_IGN);

	fuse = fuse_new(&args, &operations, sizeof(operations), NULL);
	if (fuse == NULL)
		return 1;
	if (fuse_mount(fuse, mountpoint) != 0)
		return 1;				/* the library has said why */
	if ((errno = pthread_create(&ender, NULL, end_when_told, fuse)) != 0)
	{
		fail("cannot start", "a thread");
		fuse_unmount(fuse);
		return 1;
	}
	puts("ready");
	fflush(stdout);
	fuse_loop_cfg_set_max_threads(loop, MAX_THREADS);
	fuse_loop_cfg_set_idle_threads(loop, MAX_THREADS);
	fuse_loop_mt(fuse, loop);
	fuse_destroy(fuse);
	fuse_loop_cfg_destroy(loop);
	return 0;
}
