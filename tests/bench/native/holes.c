/* Watches a core for times in which it ran nothing of ours, because the host or the kernel had other things to do.
 *
 *     holes CORE PRIORITY
 *
 * Sleeps a millisecond at a time, before everything else on that core, until its input is closed. Then prints, as one
 * line of JSON, from when to when it did not run although it should have, in nanoseconds of CLOCK_MONOTONIC.
 */
#include "net.h"

#include <sched.h>

enum { PERIOD_NS = 1000000, NOTICED_NS = 300000, MOST = 4096 };

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: holes CORE PRIORITY\n"), 2;
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(atoi(argv[1]), &core);
    if (sched_setaffinity(0, sizeof core, &core)) die("sched_setaffinity");
    /* Without the right to go first it sees holes that are none: then it says so by seeing nothing. */
    struct sched_param first = {.sched_priority = atoi(argv[2])};
    int blind = sched_setscheduler(0, SCHED_FIFO, &first) != 0;
    set_up_process();
    fcntl(0, F_SETFL, O_NONBLOCK);
    static int64_t holes[MOST][2];
    int count = 0;
    char byte;
    int64_t due = now_ns();
    while (read(0, &byte, 1) != 0) {
        due += PERIOD_NS;
        struct timespec until = {due / NS_PER_S, due % NS_PER_S};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        int64_t now = now_ns();
        if (now - due > NOTICED_NS) {
            if (!blind && count < MOST) {
                holes[count][0] = due - PERIOD_NS; /* it may have begun right after the last look */
                holes[count++][1] = now;
            }
            due = now;
        }
    }
    putchar('[');
    for (int i = 0; i < count; i++) printf("%s[%lld,%lld]", i ? "," : "", (long long)holes[i][0], (long long)holes[i][1]);
    puts("]");
    return 0;
}
