/* The floor under every proxy: receive, send, nothing else. One upstream connection for every client connection.
 *
 *     floor LISTEN_PORT UPSTREAM_PORT
 */
#include "net.h"

static int peer_of[MAX_FD];

static void close_pair(int fd) {
    close(peer_of[fd]);
    close(fd);
}

static void accept_all(int ep, int listener, int upstream_port) {
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
        int up = connect_to(upstream_port);
        no_delay(fd);
        peer_of[fd] = up;
        peer_of[up] = fd;
        watch(ep, fd, EPOLLIN);
        watch(ep, up, EPOLLIN);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: floor LISTEN_PORT UPSTREAM_PORT\n"), 2;
    set_up_process();
    int ep = epoll_create1(0), listener = listen_on(atoi(argv[1]));
    static struct epoll_event events[512];
    static char buffer[65536];
    watch(ep, listener, EPOLLIN);
    for (;;) {
        int n = epoll_wait(ep, events, 512, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                accept_all(ep, listener, atoi(argv[2]));
                continue;
            }
            ssize_t got = recv(fd, buffer, sizeof buffer, 0);
            if (got < 0 && (errno == EAGAIN || errno == EBADF)) continue; /* EBADF: its peer closed it in this round */
            if (got <= 0 || send(peer_of[fd], buffer, got, MSG_NOSIGNAL) != got) close_pair(fd);
        }
    }
}
