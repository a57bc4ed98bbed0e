// Shifts the wall clock of the process that it is preloaded into by as many
// nanoseconds as the file DLOCK_CLOCK says, an int64 of this machine, at every
// call. The monotonic clocks stay as they are.
//
// It makes the system calls itself: dlsym may call malloc, and malloc may ask
// for the time.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static const int64_t *offset;

__attribute__((constructor)) static void open_offset(void) {
	const char *path = getenv("DLOCK_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		_exit(97);
	void *m = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (m == MAP_FAILED)
		_exit(98);
	offset = m;
}

static int now(clockid_t id, struct timespec *ts) {
	int result = syscall(SYS_clock_gettime, id, ts);
	if (result || !offset || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
		return result;
	int64_t ns = ts->tv_sec * SECOND + ts->tv_nsec + __atomic_load_n(offset, __ATOMIC_RELAXED);
	ts->tv_sec = ns / SECOND;
	ts->tv_nsec = ns % SECOND;
	return 0;
}

int clock_gettime(clockid_t id, struct timespec *ts) { return now(id, ts); }

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
	(void)tz;
	struct timespec ts;
	if (now(CLOCK_REALTIME, &ts))
		return -1;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec ts;
	if (now(CLOCK_REALTIME, &ts))
		return (time_t)-1;
	if (t)
		*t = ts.tv_sec;
	return ts.tv_sec;
}
