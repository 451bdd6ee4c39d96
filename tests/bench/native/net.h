/* Sockets and time, shared by the three programs of the benchmark. Loopback only, by design. */
#ifndef BENCH_NET_H
#define BENCH_NET_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_FD 16384
#define NS_PER_S 1000000000LL

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static inline void die(const char *what) {
    perror(what);
    exit(1);
}

static inline struct sockaddr_in loopback(int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static inline void no_delay(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static inline int listen_on(int port) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in a = loopback(port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (void *)&a, sizeof a) || listen(fd, 4096)) die("listen");
    return fd;
}

/* Returns a connected non-blocking socket; on loopback the blocking connect costs microseconds. */
static inline int connect_to(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = loopback(port);
    if (fd < 0 || connect(fd, (void *)&a, sizeof a)) die("connect");
    fcntl(fd, F_SETFL, O_NONBLOCK);
    no_delay(fd);
    return fd;
}

static inline void watch(int ep, int fd, uint32_t events) {
    struct epoll_event e = {.events = events, .data.fd = fd};
    if (fd >= MAX_FD || epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e)) die("epoll_ctl");
}

/* Timers as exact as the kernel can make them, and as many descriptors as we may have. */
static inline void set_up_process(void) {
    struct rlimit r;
    prctl(PR_SET_TIMERSLACK, 1UL);
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

static inline int wait_until(int ep, struct epoll_event *events, int n, int64_t deadline_ns) {
    int64_t left = deadline_ns - now_ns();
    struct timespec t = {0, 0};
    if (left > 0) t = (struct timespec){left / NS_PER_S, left % NS_PER_S};
    int got = epoll_pwait2(ep, events, n, &t, NULL);
    if (got < 0 && errno != EINTR) die("epoll_pwait2");
    return got < 0 ? 0 : got;
}

#endif
