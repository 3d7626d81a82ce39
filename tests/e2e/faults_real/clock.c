// Loaded before libc, it lets the clock of a process be as many seconds ahead as a file says, from one moment to the next.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile long *ahead;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("KOSMOS_CSI_AHEAD");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *seconds = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (seconds != MAP_FAILED)
        ahead = seconds;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = (int)syscall(SYS_clock_gettime, clock, time);
    if (!failed && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += *ahead;
    return failed;
}
