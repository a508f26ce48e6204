/* A load generator for WebSocket echo, which can also hold idle connections: plain sockets and one
 * epoll.
 *
 * It shares no code with the crate that it measures. It has one thread. Each connection has one
 * message in flight, and sends the next when the whole echo has arrived, so the rate also depends
 * on the latency.
 *
 *     wsload echo <port> <path> <connections> <seconds> <payload bytes>
 *                           prints one JSON object with rate and percentiles
 *     wsload idle <port> <path> <connections>
 *                           opens them, prints {"open": n}, waits for stdin
 *     wsload idle-http <port> <path> <connections>
 *                           the same after one GET each, kept alive
 *     wsload tls|h2 ...     any of them over TLS, or over HTTP/2 with TLS
 *
 * The first echo of each connection is compared byte for byte, and later ones by opcode and length.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "h2.h"

#define SLOWEST_US 2000000 /* a latency above two seconds counts as two seconds */
#define READ_SIZE 65536

struct connection {
    int fd;
    bool compared;
    uint8_t head[10];
    int head_length;       /* received bytes of the frame header */
    uint64_t left;         /* payload bytes still to be received */
    uint64_t length;       /* payload bytes of this message */
    uint64_t sent_at;
    size_t unsent;         /* bytes of the frame still to be written */
};

static uint32_t latencies[SLOWEST_US + 1];
static char *payload;
static uint8_t *frame;
static size_t payload_length, frame_length;
static uint64_t messages, errors;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "wsload: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void make_frame(void) {
    static const uint8_t key[4] = {0x37, 0xfa, 0x21, 0x3d};
    size_t head = 2;
    payload = malloc(payload_length + 1);
    frame = malloc(payload_length + 14 + H2_HEAD);
    for (size_t i = 0; i < payload_length; i++) {
        payload[i] = (char)('a' + i % 26);
    }
    frame[0] = 0x81;
    if (payload_length < 126) {
        frame[1] = (uint8_t)(0x80 | payload_length);
    } else if (payload_length < 65536) {
        frame[1] = 0x80 | 126;
        frame[2] = (uint8_t)(payload_length >> 8);
        frame[3] = (uint8_t)payload_length;
        head = 4;
    } else {
        frame[1] = 0x80 | 127;
        for (int i = 0; i < 8; i++) {
            frame[2 + i] = (uint8_t)(payload_length >> (56 - 8 * i));
        }
        head = 10;
    }
    memcpy(frame + head, key, 4);
    for (size_t i = 0; i < payload_length; i++) {
        frame[head + 4 + i] = (uint8_t)payload[i] ^ key[i % 4];
    }
    frame_length = head + 4 + payload_length;
    if (is_h2) {
        memmove(frame + H2_HEAD, frame, frame_length);
        frame_length += h2_head(frame, frame_length, H2_DATA, 0, 1);
    }
}

static int dial(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        die("connect");
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (tls_context != NULL && tls_connect(fd) != 0) {
        die("TLS handshake");
    }
    return fd;
}

/* The number of connections that are opened before the first response is awaited: less than the
 * backlog of any contender (128 for httpuv). */
#define BATCH 64

/* Reads one response head, and for HTTP also the body that its Content-Length announces. */
static void read_answer(int fd, const char *expected) {
    char answer[16384];
    size_t length = 0;
    for (;;) {
        ssize_t n = get(fd, answer + length, sizeof answer - 1 - length, 0);
        if (n <= 0) {
            die("the server closed during the handshake");
        }
        length += (size_t)n;
        answer[length] = 0;
        char *end = strstr(answer, "\r\n\r\n");
        if (end == NULL) {
            continue;
        }
        char *announced = strcasestr(answer, "content-length:");
        size_t body = announced != NULL && announced < end ? strtoul(announced + 15, NULL, 10) : 0;
        if (length >= (size_t)(end + 4 - answer) + body) {
            break;
        }
    }
    if (strncmp(answer, expected, strlen(expected)) != 0) {
        fprintf(stderr, "wsload: unexpected answer: %.60s\n", answer);
        exit(1);
    }
}

/* Opens all connections and completes the first request of each, one batch at a time. */
static void open_all(struct connection *all, int count, int port, const char *path, bool is_http) {
    char request[512];
    const char *upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                          "Sec-WebSocket-Version: 13\r\n";
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s\r\n", path, port,
             is_http ? "" : upgrade);
    for (int i = 0; is_h2 && i < count; i++) {
        all[i].fd = dial(port);
        if (!h2_open(all[i].fd, path, !is_http)) {
            die("the server refused the stream");
        }
    }
    for (int first = 0; !is_h2 && first < count; first += BATCH) {
        int end = first + BATCH < count ? first + BATCH : count;
        for (int i = first; i < end; i++) {
            all[i].fd = dial(port);
            if (give(all[i].fd, request, strlen(request),
                MSG_NOSIGNAL) != (ssize_t)strlen(request)) {
                die("send");
            }
        }
        for (int i = first; i < end; i++) {
            read_answer(all[i].fd, is_http ? "HTTP/1.1 200" : "HTTP/1.1 101");
        }
    }
}

static void write_frame(struct connection *c) {
    while (c->unsent > 0) {
        ssize_t n = give(c->fd, frame + frame_length - c->unsent, c->unsent, MSG_NOSIGNAL
            | MSG_DONTWAIT);
        if (n < 0) {
            if (errno != EAGAIN) {
                errors++;
                c->unsent = 0;
            }
            return; /* EPOLLOUT is always armed for large frames; see `watch` */
        }
        c->unsent -= (size_t)n;
    }
}

static void send_next(struct connection *c) {
    c->sent_at = now_ns();
    c->unsent = frame_length;
    write_frame(c);
}

static void finish_message(struct connection *c) {
    uint64_t us = (now_ns() - c->sent_at) / 1000;
    latencies[us > SLOWEST_US ? SLOWEST_US : us]++;
    messages++;
    if ((c->head[0] & 0x0f) != 1 || c->length != payload_length) {
        errors++;
    }
    c->head_length = 0;
}

/* Returns the length of the frame header, as far as the received bytes show it. */
static int head_size(const struct connection *c) {
    int code = c->head_length < 2 ? 0 : c->head[1] & 0x7f;
    return code == 126 ? 4 : code == 127 ? 10 : 2;
}

/* Parses received bytes, and returns the number of messages that ended. */
static int take(struct connection *c, const uint8_t *data, size_t length) {
    int done = 0;
    size_t at = 0;
    while (at < length) {
        if (c->left == 0) {
            c->head[c->head_length++] = data[at++];
            if (c->head_length < 2 || c->head_length < head_size(c)) {
                continue;
            }
            uint64_t size = c->head[1] & 0x7f;
            if (size == 126) {
                size = (uint64_t)c->head[2] << 8 | c->head[3];
            } else if (size == 127) {
                size = 0;
                for (int i = 2; i < 10; i++) {
                    size = size << 8 | c->head[i];
                }
            }
            if ((c->head[0] & 0x08) != 0 || (c->head[0] & 0x80) == 0) {
                /* a control frame or a fragment, which no contender sends for this load */
                errors++;
            }
            c->length = c->left = size;
            if (size == 0) {
                finish_message(c);
                done++;
            }
            continue;
        }
        size_t part = length - at < c->left ? length - at : (size_t)c->left;
        if (!c->compared) {
            uint64_t offset = c->length - c->left;
            if (c->length != payload_length || memcmp(data + at, payload + offset, part) != 0) {
                errors++;
            }
        }
        at += part;
        c->left -= part;
        if (c->left == 0) {
            c->compared = true;
            finish_message(c);
            done++;
        }
    }
    return done;
}

static unsigned percentile(double of) {
    uint64_t rank = (uint64_t)(of / 100.0 * (double)messages), seen = 0;
    for (unsigned us = 0; us <= SLOWEST_US; us++) {
        seen += latencies[us];
        if (seen > rank) {
            return us;
        }
    }
    return SLOWEST_US;
}

static void echo(struct connection *all, int count, double seconds) {
    static uint8_t data[READ_SIZE];
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        if (frame_length > 8192) {
            event.events |= EPOLLOUT | EPOLLET;
        }
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, all[i].fd, &event);
        if (tls_context != NULL) {
            fcntl(all[i].fd, F_SETFL, O_NONBLOCK);
        }
    }
    uint64_t start = now_ns(), end = start + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < count; i++) {
        send_next(&all[i]);
    }
    struct epoll_event events[256];
    while (now_ns() < end) {
        int ready = epoll_wait(epoll_fd, events, 256, 100);
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            write_frame(c);
            for (;;) {
                ssize_t n = is_h2 ? h2_get(c->fd, data, sizeof data)
                    : get(c->fd, data, sizeof data, MSG_DONTWAIT);
                if (n < 0 && errno == EAGAIN) {
                    break;
                }
                if (n <= 0) {
                    errors++;
                    epoll_ctl(epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
                    break;
                }
                if (take(c, data, (size_t)n) > 0) {
                    send_next(c);
                }
                if (n < (ssize_t)sizeof data && frame_length <= 8192) {
                    break; /* level-triggered: the rest is reported by the next wait */
                }
            }
        }
    }
    double took = (double)(now_ns() - start) * 1e-9;
    printf("{\"messages\": %llu, \"seconds\": %.6f, \"errors\": %llu, "
           "\"p50\": %u, \"p99\": %u, \"p999\": %u}\n",
           (unsigned long long)messages, took, (unsigned long long)errors, percentile(50),
           percentile(99), percentile(99.9));
}

int main(int argc, char **argv) {
    is_h2 = argc > 1 && strcmp(argv[1], "h2") == 0;
    if (is_h2 || (argc > 1 && strcmp(argv[1], "tls") == 0)) {
        tls_begin();
        if (is_h2) {
            SSL_CTX_set_alpn_protos(tls_context, (const unsigned char *)"\2h2", 3);
        }
        argv++, argc--;
    }
    bool is_echo = argc == 7 && strcmp(argv[1], "echo") == 0;
    bool is_http = argc == 5 && strcmp(argv[1], "idle-http") == 0;
    if (!is_echo && !is_http && !(argc == 5 && strcmp(argv[1], "idle") == 0)) {
        fprintf(stderr,
            "usage: wsload [tls|h2] echo|idle|idle-http <port> <path> <connections> "
            "[<seconds> <payload bytes>]\n");
        return 2;
    }
    int port = atoi(argv[2]), count = atoi(argv[4]);
    struct connection *all = calloc((size_t)count, sizeof *all);
    open_all(all, count, port, argv[3], is_http);
    if (is_echo) {
        payload_length = strtoul(argv[6], NULL, 10);
        make_frame();
        echo(all, count, strtod(argv[5], NULL));
    } else {
        printf("{\"open\": %d}\n", count);
        fflush(stdout);
        getchar();
    }
    return 0;
}
