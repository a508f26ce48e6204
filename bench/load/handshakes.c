/* Full TLS handshakes, one after the other on each of several threads: connect, handshake, close,
 * and wait for the server's close, so that only handshakes count that the server has completed.
 *
 *     handshakes <port> <threads> <seconds>      prints one JSON object */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "tls.h"

static int port;
static double end;
static _Atomic uint64_t done, errors;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int one(int fd) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval limit = {.tv_sec = 5};
    char rest[256];
    ssize_t n;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 || tls_connect(fd) != 0) {
        return -1;
    }
    SSL_shutdown(tls_of[fd]);
    tls_free(fd);
    shutdown(fd, SHUT_WR);
    /* Reads the session tickets and the close_notify; the connection may end with a reset. */
    while ((n = recv(fd, rest, sizeof rest, 0)) > 0) {
    }
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? -1 : 0;
}

static void *work(void *unused) {
    while (now() < end) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (one(fd) == 0) {
            done++;
        } else {
            errors++;
        }
        close(fd);
    }
    return unused;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: handshakes <port> <threads> <seconds>\n");
        return 2;
    }
    int count = atoi(argv[2]);
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    port = atoi(argv[1]);
    tls_begin();
    double start = now();
    end = start + strtod(argv[3], NULL);
    for (int i = 0; i < count; i++) {
        pthread_create(&threads[i], NULL, work, NULL);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("{\"handshakes\": %llu, \"seconds\": %.6f, \"errors\": %llu}\n",
        (unsigned long long)done, now() - start,
           (unsigned long long)errors);
    return 0;
}
