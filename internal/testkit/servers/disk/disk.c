// A disk that tests can fill: loaded into a server, it refuses with ENOSPC to
// write to files whose path contains HOLDFAST_FULL_PATH, as long as the file
// HOLDFAST_FULL exists. It asks the kernel itself, so that nothing here depends
// on what the server has loaded.

#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int full(int fd) {
	const char *flag = getenv("HOLDFAST_FULL"), *part = getenv("HOLDFAST_FULL_PATH");
	if (!flag || !part || syscall(SYS_access, flag, F_OK) != 0) return 0;
	char link[64], path[4096];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	long n = syscall(SYS_readlink, link, path, sizeof path - 1);
	if (n <= 0) return 0;
	path[n] = 0;
	return strstr(path, part) != 0;
}

static ssize_t refused(void) {
	errno = ENOSPC;
	return -1;
}

ssize_t write(int fd, const void *b, size_t n) {
	return full(fd) ? refused() : syscall(SYS_write, fd, b, n);
}

ssize_t pwrite64(int fd, const void *b, size_t n, off64_t at) {
	return full(fd) ? refused() : syscall(SYS_pwrite64, fd, b, n, at);
}

ssize_t pwrite(int fd, const void *b, size_t n, off_t at) { return pwrite64(fd, b, n, at); }

ssize_t pwritev64(int fd, const struct iovec *v, int n, off64_t at) {
	return full(fd) ? refused() : syscall(SYS_pwritev, fd, v, n, at, 0);
}

ssize_t pwritev(int fd, const struct iovec *v, int n, off_t at) { return pwritev64(fd, v, n, at); }

int posix_fallocate64(int fd, off64_t at, off64_t n) {
	if (full(fd)) return ENOSPC;
	return syscall(SYS_fallocate, fd, 0, at, n) == 0 ? 0 : errno;
}

int posix_fallocate(int fd, off_t at, off_t n) { return posix_fallocate64(fd, at, n); }

int fallocate64(int fd, int mode, off64_t at, off64_t n) {
	return full(fd) ? (int)refused() : (int)syscall(SYS_fallocate, fd, mode, at, n);
}

int fallocate(int fd, int mode, off_t at, off_t n) { return fallocate64(fd, mode, at, n); }
