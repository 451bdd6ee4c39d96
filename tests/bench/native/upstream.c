/* A server that streams as vLLM does, at an exact pace, with the time of sending in every token.
 *
 *     upstream PORT
 *
 * POST anything: a chat completion as server-sent events. The request body says how, in fields of its JSON:
 *     "max_tokens":N  "rate":TOKENS_PER_SECOND  "step":1 (all streams at once, as an engine does; else evenly spread)
 *     "hold_ms":MS (stay silent that long before the end)
 * GET /metrics, /health, /v1/models: short answers, so that a sidecar finds what it looks for.
 * GET /metrics?page: a page as large as vLLM's, 64 KiB, as a gateway's scraper gets it.
 * GET /pace: how well the pace was kept since the last time of asking: the latest send, and sends that found no room.
 * A token's content is "@" and 19 digits, CLOCK_MONOTONIC nanoseconds just before the send.
 */
#include "net.h"

enum { INBUF = 65536, PAYLOAD = 512 };

typedef struct stream {
    struct stream *next, *prev;
    int fd, left, used, step;
    int64_t due, period, hold;
    char in[INBUF];
} stream;

static stream *streams[MAX_FD];
static stream queue = {.next = &queue, .prev = &queue}; /* ordered by due time */
static int ep;
static int64_t latest; /* nanoseconds behind its time, of the latest token */
static long no_room;

static const char HEAD[] =
    "HTTP/1.1 200 OK\r\ndate: Sun, 29 Nov 2026 12:00:00 GMT\r\nserver: uvicorn\r\n"
    "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
#define EVENT_HEAD "data: {\"id\":\"chatcmpl-%032x\",\"object\":\"chat.completion.chunk\",\"created\":1795979249,\"model\":\"bench\","

static void unlink_stream(stream *s) {
    if (!s->next) return;
    s->prev->next = s->next;
    s->next->prev = s->prev;
    s->next = s->prev = NULL;
}

static void link_by_due(stream *s) {
    stream *after = queue.prev;
    while (after != &queue && after->due > s->due) after = after->prev;
    s->prev = after;
    s->next = after->next;
    after->next->prev = s;
    after->next = s;
}

static void close_stream(stream *s) {
    unlink_stream(s);
    streams[s->fd] = NULL;
    close(s->fd);
    free(s);
}

/* Returns 0 when nothing could be sent: the reader is behind. A part that was sent is finished by waiting, asleep: the
 * reader may need this very core to make room. */
static int send_all(int fd, const char *data, size_t size) {
    ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
    if (sent < 0) return 0;
    while ((size_t)sent < size) {
        ssize_t more = send(fd, data + sent, size - sent, MSG_NOSIGNAL);
        if (more < 0 && errno != EAGAIN) return 0;
        if (more > 0) sent += more;
        else poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 1000);
    }
    return 1;
}

static int send_chunk(stream *s, const char *payload, int size, const char *lead) {
    char out[2 * PAYLOAD];
    int n = sprintf(out, "%s%x\r\n%.*s\r\n", lead, size, size, payload);
    return send_all(s->fd, out, n);
}

static void send_opener(stream *s) {
    char p[PAYLOAD];
    int n = sprintf(p, EVENT_HEAD "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                       "\"finish_reason\":null}]}\n\n", s->fd);
    send_chunk(s, p, n, HEAD);
}

static int send_token(stream *s) {
    char p[PAYLOAD];
    int n = sprintf(p, EVENT_HEAD "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"@%019lld\"},\"logprobs\":null,"
                       "\"finish_reason\":null,\"token_ids\":null}]}\n\n", s->fd, (long long)now_ns());
    return send_chunk(s, p, n, "");
}

static void send_end(stream *s) {
    char p[PAYLOAD];
    int n = sprintf(p, EVENT_HEAD "\"choices\":[],\"usage\":{\"prompt_tokens\":64,\"total_tokens\":%d,\"completion_tokens\":%d}}\n\n",
                    s->fd, 64 + s->used, s->used);
    send_chunk(s, p, n, "");
    send_all(s->fd, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n", 24);
}

static long number_in(const char *body, const char *key) {
    const char *at = strstr(body, key);
    return at ? strtol(at + strlen(key), NULL, 10) : 0;
}

static void start_stream(stream *s, const char *body) {
    char *at = strstr(body, "\"rate\":");
    double rate = at ? strtod(at + 7, NULL) : 0;
    s->left = number_in(body, "\"max_tokens\":");
    s->step = number_in(body, "\"step\":");
    s->hold = number_in(body, "\"hold_ms\":") * 1000000LL;
    s->period = NS_PER_S / (rate > 0 ? rate : 1);
    s->used = 0;
    int64_t now = now_ns();
    s->due = s->step ? (now / s->period + 1) * s->period : now + random() % s->period;
    link_by_due(s);
    send_opener(s);
}

static void advance(stream *s, int64_t now) {
    unlink_stream(s);
    if (s->left == 0) {
        send_end(s);
        return;
    }
    if (now - s->due > latest) latest = now - s->due;
    if (send_token(s)) {
        s->left--;
        s->used++;
    } else {
        no_room++;
    }
    s->due += s->period;
    if (s->due < now) s->due = now + s->period; /* never catch up in a burst */
    if (s->left == 0) s->due += s->hold;
    link_by_due(s);
}

static void answer(stream *s, const char *type, const char *body) {
    char out[2048];
    int n = sprintf(out, "HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n%s", type, strlen(body), body);
    send_all(s->fd, out, n);
}

static const char METRICS[] =
    "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"bench\"} 1.0\n"
    "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine=\"0\",model_name=\"bench\"} 0.0\n"
    "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{engine=\"0\",model_name=\"bench\"} 0.5\n"
    "# TYPE vllm:num_preemptions counter\nvllm:num_preemptions_total{engine=\"0\",model_name=\"bench\"} 0.0\n";
static const char MODELS[] =
    "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\",\"created\":1,\"owned_by\":\"vllm\",\"max_model_len\":16384}]}";

/* A whole page: the few figures, and comments up to its size. */
static void answer_page(stream *s) {
    enum { SIZE = 65536 };
    static char out[SIZE + 256];
    if (!out[0]) {
        int n = sprintf(out, "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\ncontent-length: %d\r\n\r\n", SIZE);
        char *body = out + n;
        memset(body, '#', SIZE);
        memcpy(body, METRICS, sizeof METRICS - 1);
        for (int at = sizeof METRICS + 80; at < SIZE; at += 80) body[at] = '\n';
        body[SIZE - 1] = '\n';
        body[SIZE] = 0;
    }
    send_all(s->fd, out, strlen(out));
}

static void answer_pace(stream *s) {
    char body[128];
    sprintf(body, "{\"latest_ns\":%lld,\"no_room\":%ld}", (long long)latest, no_room);
    latest = no_room = 0;
    answer(s, "application/json", body);
}

static void handle_request(stream *s, const char *head, const char *body) {
    if (!strncmp(head, "POST", 4)) start_stream(s, body);
    else if (strstr(head, " /metrics?page")) answer_page(s);
    else if (strstr(head, " /metrics")) answer(s, "text/plain; version=0.0.4; charset=utf-8", METRICS);
    else if (strstr(head, " /pace")) answer_pace(s);
    else if (strstr(head, " /v1/models")) answer(s, "application/json", MODELS);
    else answer(s, "application/json", "");
}

/* Takes one whole request from the front of the buffer, if there is one. */
static int take_request(stream *s, int *have) {
    s->in[*have] = 0;
    char *end = strstr(s->in, "\r\n\r\n");
    if (!end) return 0;
    *end = 0;
    char *length = strcasestr(s->in, "\r\ncontent-length:");
    int head = end + 4 - s->in, size = head + (length ? atoi(length + 17) : 0);
    if (size > *have) return *end = '\r', 0;
    char *body = malloc(size - head + 1);
    memcpy(body, s->in + head, size - head);
    body[size - head] = 0;
    handle_request(s, s->in, body);
    free(body);
    memmove(s->in, s->in + size, *have -= size);
    return 1;
}

static int held[MAX_FD]; /* bytes waiting in streams[fd]->in */

static void readable(int fd) {
    stream *s = streams[fd];
    if (!s) return;
    ssize_t got = recv(fd, s->in + held[fd], INBUF - 1 - held[fd], 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        close_stream(s);
        return;
    }
    held[fd] += got;
    while (take_request(s, &held[fd])) {}
}

static void accept_all(int listener) {
    for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
        no_delay(fd);
        watch(ep, fd, EPOLLIN);
        streams[fd] = calloc(1, sizeof(stream));
        streams[fd]->fd = fd;
        held[fd] = 0;
    }
}

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: upstream PORT\n"), 2;
    set_up_process();
    srandom(1);
    ep = epoll_create1(0);
    int listener = listen_on(atoi(argv[1]));
    static struct epoll_event events[512];
    watch(ep, listener, EPOLLIN);
    for (;;) {
        int64_t due = queue.next == &queue ? now_ns() + NS_PER_S : queue.next->due;
        int n = wait_until(ep, events, 512, due);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener) accept_all(listener);
            else readable(events[i].data.fd);
        }
        int64_t now = now_ns();
        while (queue.next != &queue && queue.next->due <= now) advance(queue.next, now);
    }
}
