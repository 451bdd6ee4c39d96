/* Holds many streams open through a proxy and measures how old every token is when it arrives.
 *
 *     client PORT STREAMS RATE MAX_TOKENS WARMUP_S MEASURE_S STEP HOLD_MS AGAIN
 *
 * Prints STEADY once every stream has had a token, BEGIN and END around the measured time, so that whoever watches the
 * proxy can read its counters at those moments, and then one line of JSON. With MEASURE_S 0 it waits for every stream's
 * own end instead and counts the complete ones. With AGAIN each answer that is complete is followed by the next request on
 * the same connection. Latencies are nanoseconds from just before the upstream's send to just after our receive, on one
 * clock. "slowest" are the times of sending and of coming of the slower half, the slowest first, so that those which a
 * hole of the machine held up can be told from the rest.
 */
#include "net.h"

enum { DIGITS = 19, OPENING = 64, PART = 32, SLOWEST_PART = 2 };

enum { TAIL = 16 }; /* enough to see "data: [DONE]" and the last chunk across the end of a read */

typedef struct {
    int open, answered, digits, tokens, done;
    int64_t value;
    char tail[TAIL];
} stream;

typedef struct {
    int64_t age, came; /* came: when it was received */
} arrival;

static stream streams[MAX_FD];
static arrival *arrivals;
static size_t count, capacity, tokens;
static int measuring, answered, steady, alive, complete, broken, again, ep;

static void keep(int64_t age, int64_t now) {
    if (count == capacity) {
        capacity = capacity ? 2 * capacity : 1 << 16;
        if (!(arrivals = realloc(arrivals, capacity * sizeof *arrivals))) die("realloc");
    }
    arrivals[count++] = (arrival){age, now};
}

static void token(stream *s, int64_t now) {
    if (s->tokens++ == 0) steady++;
    tokens++;
    if (measuring) keep(now - s->value, now);
}

/* "@" and 19 digits, possibly cut by the end of a read. */
static void scan(stream *s, const char *data, size_t size, int64_t now) {
    for (const char *p = data, *end = data + size; p < end;) {
        if (s->digits == 0) {
            if (!(p = memchr(p, '@', end - p))) return;
            p++;
            s->digits = 1;
            s->value = 0;
        } else {
            s->value = s->value * 10 + (*p++ - '0');
            if (s->digits++ == DIGITS) {
                token(s, now);
                s->digits = 0;
            }
        }
    }
}

static int port;
static char request[2048];

static void ask(int fd) {
    if (send(fd, request, strlen(request), MSG_NOSIGNAL) < 0) die("send");
}

static void open_stream(void) {
    int fd = connect_to(port);
    streams[fd] = (stream){.open = 1};
    watch(ep, fd, EPOLLIN);
    ask(fd);
    alive++;
}

static void ended(int fd) {
    stream *s = &streams[fd];
    if (!s->open) return;
    if (s->done && again) {
        complete++;
        *s = (stream){.open = 1, .answered = 1, .tokens = s->tokens};
        ask(fd);
        return;
    }
    s->open = 0;
    alive--;
    if (s->done) complete++;
    else broken++;
    close(fd);
}

static void readable(int fd) {
    static char buffer[TAIL + 65536];
    stream *s = &streams[fd];
    ssize_t got = recv(fd, buffer + TAIL, sizeof buffer - TAIL, 0);
    int64_t now = now_ns();
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        s->done = s->done && !again;
        ended(fd);
        return;
    }
    if (!s->answered) s->answered = 1, answered++;
    scan(s, buffer + TAIL, got, now);
    memcpy(buffer, s->tail, TAIL);
    memcpy(s->tail, buffer + got, TAIL);
    if (memmem(buffer, TAIL + got, "data: [DONE]", 12)) s->done = 1;
    if (s->done && !memcmp(s->tail + TAIL - 5, "0\r\n\r\n", 5)) ended(fd);
}

static void turn(int64_t until) {
    static struct epoll_event events[512];
    int n = wait_until(ep, events, 512, until);
    for (int i = 0; i < n; i++) readable(events[i].data.fd);
}

static void run_for(double seconds) {
    int64_t until = now_ns() + (int64_t)(seconds * 1e9);
    while (now_ns() < until) turn(until);
}

static void say(const char *word) {
    puts(word);
    fflush(stdout);
}

static int by_age(const void *a, const void *b) {
    int64_t x = ((const arrival *)a)->age, y = ((const arrival *)b)->age;
    return (x > y) - (x < y);
}

static long long quantile(double q) {
    return count ? (long long)arrivals[(size_t)(q * (count - 1))].age : -1;
}

int main(int argc, char **argv) {
    if (argc != 10) return fprintf(stderr, "usage: client PORT STREAMS RATE MAX_TOKENS WARMUP_S MEASURE_S STEP HOLD_MS AGAIN\n"), 2;
    again = atoi(argv[9]);
    port = atoi(argv[1]);
    int wanted = atoi(argv[2]);
    double warmup = atof(argv[5]), measure = atof(argv[6]);
    set_up_process();
    ep = epoll_create1(0);
    char body[1024];
    int size = sprintf(body,
                       "{\"model\":\"bench\",\"messages\":[{\"role\":\"user\",\"content\":\"Write a long story about a river, a bridge and "
                       "the people who cross it every day on their way to work.\"}],\"stream\":true,\"rate\":%s,\"max_tokens\":%s,"
                       "\"step\":%s,\"hold_ms\":%s}",
                       argv[3], argv[4], argv[7], argv[8]);
    sprintf(request,
            "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: */*\r\nUser-Agent: bench\r\nContent-Type: "
            "application/json\r\nContent-Length: %d\r\n\r\n%s",
            port, size, body);

    /* A few at a time, so that opening is no flood: the next once the first bytes of one's answer have come. */
    int opened = 0, most = wanted / PART > OPENING ? wanted / PART : OPENING;
    int64_t limit = now_ns() + 60 * NS_PER_S;
    while (steady < wanted) {
        while (opened < wanted && opened - answered < most) open_stream(), opened++;
        turn(now_ns() + 100000000);
        if (now_ns() > limit || broken) return fprintf(stderr, "%d of %d streams had a token, %d broke\n", steady, wanted, broken), 1;
    }
    say("STEADY");
    run_for(warmup);
    int64_t begun = now_ns();
    size_t before = tokens;
    measuring = 1;
    say("BEGIN");
    if (measure > 0) run_for(measure);
    else
        while (alive) turn(now_ns() + NS_PER_S);
    int64_t ended = now_ns();
    say("END");
    size_t measured = tokens - before;
    qsort(arrivals, count, sizeof *arrivals, by_age);
    printf("{\"streams\":%d,\"alive\":%d,\"complete\":%d,\"broken\":%d,\"tokens\":%zu,\"all_tokens\":%zu,\"seconds\":%.3f,"
           "\"latency_ns\":{\"p50\":%lld,\"p90\":%lld,\"p99\":%lld,\"p999\":%lld,\"max\":%lld},\"slowest\":[",
           wanted, alive, complete, broken, measured, tokens, (ended - begun) / 1e9, quantile(0.5), quantile(0.9), quantile(0.99),
           quantile(0.999), quantile(1.0));
    for (size_t i = 0; i < count / SLOWEST_PART; i++) {
        arrival *each = &arrivals[count - 1 - i];
        printf("%s[%lld,%lld]", i ? "," : "", (long long)(each->came - each->age), (long long)each->came);
    }
    puts("]}");
    return 0;
}
