/* HTTP/1.1 requests with a Content-Length or without a body, which is all that the load generators
 * send. */
#include "bare_epoll.h"
#include <string.h>

/* The tchar of RFC 9110, 5.6.2 in lower case; zero for a byte that is invalid in a name. */
static unsigned char name_byte[256];

__attribute__((constructor)) static void fill_name_bytes(void) {
    for (const char *p = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"; *p != 0; p++) {
        name_byte[(unsigned char)*p] = (unsigned char)*p;
    }
    for (int c = 'A'; c <= 'Z'; c++) {
        name_byte[c] = (unsigned char)(c + ('a' - 'A'));
    }
}

static bool equals(struct span span, const char *text) {
    return span.length == strlen(text) && memcmp(span.start, text, span.length) == 0;
}

static bool read_length(struct span value, size_t *length) {
    size_t total = 0;
    if (value.length == 0 || value.length > 9) {
        return false;
    }
    for (uint32_t i = 0; i < value.length; i++) {
        if (value.start[i] < '0' || value.start[i] > '9') {
            return false;
        }
        total = total * 10 + (size_t)(value.start[i] - '0');
    }
    *length = total;
    return true;
}

static bool read_request_line(char *line, char *end, struct request *request, int *minor) {
    char *space = memchr(line, ' ', (size_t)(end - line));
    if (space == NULL || space == line) {
        return false;
    }
    request->method = (struct span){line, (uint32_t)(space - line)};
    char *target = space + 1;
    char *target_end = memchr(target, ' ', (size_t)(end - target));
    if (target_end == NULL || target_end == target || end - target_end != 9
        || memcmp(target_end, " HTTP/1.", 8) != 0) {
        return false;
    }
    *minor = target_end[8] - '0';
    char *question = memchr(target, '?', (size_t)(target_end - target));
    char *path_end = question == NULL ? target_end : question;
    request->path = (struct span){target, (uint32_t)(path_end - target)};
    request->query = (struct span){path_end, (uint32_t)(target_end - path_end)};
    return *minor == 0 || *minor == 1;
}

static bool read_header(char *line, char *end, struct header *header) {
    char *p = line;
    for (; p < end && name_byte[(unsigned char)*p] != 0; p++) {
        *p = (char)name_byte[(unsigned char)*p];
    }
    if (p == end || p == line || *p != ':') {
        return false;
    }
    header->name = (struct span){line, (uint32_t)(p - line)};
    p++;
    while (p < end && (*p == ' ' || *p == '\t')) {
        p++;
    }
    while (end > p && (end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    header->value = (struct span){p, (uint32_t)(end - p)};
    for (; p < end; p++) {
        if ((unsigned char)*p < 0x20 && *p != '\t') {
            return false;
        }
    }
    return true;
}

enum parse_status parse_request(char *data, size_t length, struct request *request, size_t *used) {
    char *head_end = memmem(data, length, "\r\n\r\n", 4);
    if (head_end == NULL) {
        return length >= (80u << 10) ? PARSE_BAD : PARSE_PARTIAL;
    }
    char *line_end = memchr(data, '\r', (size_t)(head_end - data) + 1);
    int minor = 1;
    if (!read_request_line(data, line_end, request, &minor)) {
        return PARSE_BAD;
    }
    size_t body_length = 0;
    int count = 0;
    request->keep_alive = minor == 1;
    while (line_end < head_end) {
        char *line = line_end + 2;
        line_end = memchr(line, '\r', (size_t)(head_end - line) + 1);
        if (line_end[1] != '\n' || count == MAX_HEADERS
            || !read_header(line, line_end, &request->headers[count])) {
            return PARSE_BAD;
        }
        struct header *header = &request->headers[count++];
        if (header->name.length == 14 && equals(header->name, "content-length")) {
            if (!read_length(header->value, &body_length)) {
                return PARSE_BAD;
            }
        } else if (header->name.length == 10 && equals(header->name, "connection")) {
            request->keep_alive = minor == 1 ? !equals(header->value, "close")
                : equals(header->value, "keep-alive");
        } else if (header->name.length == 17 && equals(header->name, "transfer-encoding")) {
            return PARSE_BAD;
        }
    }
    request->header_count = count;
    size_t head_length = (size_t)(head_end + 4 - data);
    if (body_length > length - head_length) {
        return head_length + body_length > MAX_REQUEST ? PARSE_BAD : PARSE_PARTIAL;
    }
    request->body = (struct span){data + head_length, (uint32_t)body_length};
    *used = head_length + body_length;
    return PARSE_WHOLE;
}
