/* A load generator for streamed responses: plain sockets and one epoll.
 *
 *     streamload <port> <path> <connections> <seconds>
 *
 * prints one JSON object: pieces, bytes, answers, errors, seconds.
 *
 * Each chunk of a response has exactly one `~`, which is counted. A response that ends (with "0" as
 * the last chunk) is followed by another connection and request; a truncated response is an error.
 * Counting begins when all connections have received a first response, so that a server of one
 * thread does not get more requests at once than it can queue. */
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

#define READ_SIZE (256 << 10)
#define LAST "\r\n0\r\n\r\n"
#define LAST_LENGTH 7

/* The number of connections that may wait for their first response at once, and the time limit for
 * all of them. */
#define AT_ONCE 64
#define PATIENCE_NS 20000000000ull

struct connection {
    int fd;
    bool has_begun;
    bool is_checked;              /* the status of the response has been checked */
    char tail[LAST_LENGTH];       /* the last received bytes */
};

static struct sockaddr_in address;
static char request[512];
static int epoll_fd;
static int begun; /* connections that have received a first response */
static uint64_t pieces, bytes, answers, errors;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void ask(struct connection *c) {
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    c->is_checked = false;
    memset(c->tail, 0, sizeof c->tail);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address) != 0) {
        fprintf(stderr, "streamload: connect: %s\n", strerror(errno));
        exit(1);
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event);
    if (send(c->fd, request, strlen(request), MSG_NOSIGNAL) != (ssize_t)strlen(request)) {
        errors++;
    }
}

static void count_pieces(const char *data, size_t length) {
    const char *end = data + length, *at = data;
    while (at < end && (at = memchr(at, '~', (size_t)(end - at))) != NULL) {
        pieces++;
        at++;
    }
}

/* Keeps the last bytes, which may arrive in two reads. */
static bool is_last(struct connection *c, const char *data, size_t length) {
    if (length >= LAST_LENGTH) {
        memcpy(c->tail, data + length - LAST_LENGTH, LAST_LENGTH);
    } else {
        memmove(c->tail, c->tail + length, LAST_LENGTH - length);
        memcpy(c->tail + LAST_LENGTH - length, data, length);
    }
    return memcmp(c->tail, LAST, LAST_LENGTH) == 0;
}

static void take(struct connection *c) {
    static char data[READ_SIZE];
    ssize_t n = recv(c->fd, data, sizeof data, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) {
        return;
    }
    if (n > 0) {
        if (!c->is_checked) {
            c->is_checked = true;
            errors += n < 12 || memcmp(data, "HTTP/1.1 200", 12) != 0;
            begun += !c->has_begun;
            c->has_begun = true;
        }
        bytes += (uint64_t)n;
        count_pieces(data, (size_t)n);
        if (!is_last(c, data, (size_t)n)) {
            return;
        }
        answers++;
    } else {
        errors++;
    }
    close(c->fd);
    ask(c);
}

static void take_what_is_there(void) {
    struct epoll_event events[256];
    int ready = epoll_wait(epoll_fd, events, 256, 100);
    for (int i = 0; i < ready; i++) {
        take(events[i].data.ptr);
    }
}

static bool is_over(uint64_t end) {
    return now_ns() >= end || errors > 1000;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: streamload <port> <path> <connections> <seconds>\n");
        return 2;
    }
    int count = atoi(argv[3]);
    address = (struct sockaddr_in){.sin_family = AF_INET,
        .sin_port = htons((uint16_t)atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", argv[2]);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct connection *all = calloc((size_t)count, sizeof *all);
    uint64_t patience = now_ns() + PATIENCE_NS;
    for (int i = 0; i < count; i++) {
        ask(&all[i]);
        while (begun + AT_ONCE <= i && !is_over(patience)) {
            take_what_is_there();
        }
    }
    while (begun < count && !is_over(patience)) {
        take_what_is_there();
    }
    if (begun < count) {
        fprintf(stderr, "streamload: %d of %d connections had an answer in time\n", begun, count);
        return 1;
    }
    pieces = bytes = answers = 0;
    uint64_t start = now_ns(), end = start + (uint64_t)(strtod(argv[4], NULL) * 1e9);
    while (!is_over(end)) {
        take_what_is_there();
    }
    double took = (double)(now_ns() - start) * 1e-9;
    printf("{\"pieces\": %llu, \"bytes\": %llu, \"answers\": %llu, \"errors\": %llu, "
           "\"seconds\": %.6f}\n",
           (unsigned long long)pieces, (unsigned long long)bytes, (unsigned long long)answers,
           (unsigned long long)errors, took);
    return 0;
}
