/* One HTTP/2 stream on a connection, with what a load generator needs: the uncompressed head of a
 * request, received DATA frames, and answers to the server's control frames. Its flow-control
 * window is larger than any run needs. */
#include "tls.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H2_DATA = 0, H2_HEADERS = 1, H2_RESET = 3, H2_SETTINGS = 4, H2_PING = 6, H2_GOAWAY = 7,
    H2_WINDOW = 8 };
enum { H2_END = 1, H2_ACK = 1, H2_END_HEADERS = 4, H2_HEAD = 9, H2_ENABLE_CONNECT = 8 };

struct h2 {
    /* the head of the current frame; the payload of a control frame */
    uint8_t head[H2_HEAD], control[256];
    unsigned head_length, control_length, left;
    bool takes_connect, is_answered, has_ended;
};
static bool is_h2;
static struct h2 h2_of[TLS_DESCRIPTORS];

static size_t h2_head(uint8_t *at, size_t length, int type, int flags, unsigned stream) {
    uint8_t head[H2_HEAD] = {(uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length,
        (uint8_t)type, (uint8_t)flags,
                             0, 0, 0, (uint8_t)stream};
    memcpy(at, head, H2_HEAD);
    return H2_HEAD;
}

static void h2_send(int fd, int type, int flags, unsigned stream, const void *payload,
    size_t length) {
    uint8_t frame[1024];
    memcpy(frame + h2_head(frame, length, type, flags, stream), payload, length);
    if (give(fd, frame, H2_HEAD + length, MSG_NOSIGNAL) != (ssize_t)(H2_HEAD + length)) {
        fprintf(stderr, "an HTTP/2 frame could not be sent\n");
        exit(1);
    }
}

/* A literal header field without indexing and without Huffman coding. */
static size_t h2_field(uint8_t *at, const char *name, const char *value) {
    return (size_t)sprintf((char *)at, "%c%c%s%c%s", 0, (int)strlen(name), name,
        (int)strlen(value), value);
}

static void h2_request(int fd, const char *path, bool is_socket) {
    uint8_t block[900];
    size_t n = h2_field(block, ":method", is_socket ? "CONNECT" : "GET");
    n += h2_field(block + n, ":scheme", "https");
    n += h2_field(block + n, ":authority", "localhost");
    n += h2_field(block + n, ":path", path);
    if (is_socket) {
        n += h2_field(block + n, ":protocol", "websocket");
        n += h2_field(block + n, "sec-websocket-version", "13");
    }
    h2_send(fd, H2_HEADERS, H2_END_HEADERS | (is_socket ? 0 : H2_END), 1, block, n);
}

/* Handles a whole frame. */
static bool h2_frame(int fd, struct h2 *h) {
    int type = h->head[3], flags = h->head[4];
    if (type == H2_SETTINGS && (flags & H2_ACK) == 0) {
        for (unsigned i = 0; i + 6 <= h->control_length; i += 6) {
            h->takes_connect |= h->control[i] == 0 && h->control[i + 1] == H2_ENABLE_CONNECT &&
                                h->control[i + 5] == 1;
        }
        h2_send(fd, H2_SETTINGS, H2_ACK, 0, NULL, 0);
    } else if (type == H2_PING && (flags & H2_ACK) == 0) {
        h2_send(fd, H2_PING, H2_ACK, 0, h->control, h->control_length);
    } else if (type == H2_HEADERS) {
        h->is_answered = h->control[0] == 0x88; /* `:status: 200` of the static table */
        h->has_ended |= !h->is_answered;
    } else if (type == H2_RESET || type == H2_GOAWAY) {
        return false;
    }
    h->has_ended |= (type == H2_DATA || type == H2_HEADERS) && (flags & H2_END) != 0;
    return true;
}

/* Reads the payload of DATA frames, as get() reads the connection. */
static ssize_t h2_get(int fd, uint8_t *data, size_t length) {
    struct h2 *h = &h2_of[fd];
    ssize_t n = get(fd, data, length, MSG_DONTWAIT);
    size_t out = 0;
    for (ssize_t at = 0; at < n;) {
        if (h->head_length < H2_HEAD) {
            h->head[h->head_length++] = data[at++];
            h->left = (unsigned)h->head[0] << 16 | (unsigned)h->head[1] << 8 | h->head[2];
            h->control_length = 0;
        } else {
            size_t part = (size_t)(n - at) < h->left ? (size_t)(n - at) : h->left;
            if (h->head[3] == H2_DATA) {
                memmove(data + out, data + at, part);
                out += part;
            } else if (h->control_length + part <= sizeof h->control) {
                memcpy(h->control + h->control_length, data + at, part);
                h->control_length += (unsigned)part;
            }
            at += (ssize_t)part;
            h->left -= (unsigned)part;
        }
        if (h->head_length == H2_HEAD && h->left == 0) {
            h->head_length = 0;
            if (!h2_frame(fd, h)) {
                return 0;
            }
        }
    }
    if (n > 0 && out == 0 && !h->has_ended) {
        errno = EAGAIN;
        return -1;
    }
    return n > 0 ? (ssize_t)out : n;
}

/* On a blocking descriptor: sends the preface, and a GET until the end of its response or a
 * WebSocket request (RFC 8441) until its 200. */
static bool h2_open(int fd, const char *path, bool is_socket) {
    static const uint8_t settings[] = {0, 4, 0x7f, 0xff, 0xff, 0xff}, window[] = {0x7f, 0xff, 0, 0};
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    uint8_t data[4096];
    struct h2 *h = &h2_of[fd];
    bool is_asked = !is_socket;
    memset(h, 0, sizeof *h);
    if (give(fd, preface, 24, MSG_NOSIGNAL) != 24) {
        return false;
    }
    h2_send(fd, H2_SETTINGS, 0, 0, settings, sizeof settings);
    h2_send(fd, H2_WINDOW, 0, 0, window, sizeof window);
    if (is_asked) {
        h2_request(fd, path, false);
    }
    while (is_socket ? !h->is_answered : !h->has_ended) {
        if ((h2_get(fd, data, sizeof data) <= 0 && errno != EAGAIN)
            || (is_socket && h->has_ended)) {
            return false;
        }
        if (!is_asked && h->takes_connect) {
            h2_request(fd, path, true);
            is_asked = true;
        }
    }
    return h->is_answered;
}
