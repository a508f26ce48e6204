// A stand-in for R on Windows, for tests/portable/run: it listens where the program `rookery` tells
// it, answers requests with the number of its start, and fails when it is asked for /fail.
#include <winsock2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Returns the number of this start, which is the number of lines in the file `starts`.
static int count_start(void) {
    FILE *file = fopen("starts", "a+");
    int count = 1;
    rewind(file);
    for (int byte = fgetc(file); byte != EOF; byte = fgetc(file)) {
        count += byte == '\n';
    }
    fputs("x\n", file);
    fclose(file);
    return count;
}

int main(int argc, char **argv) {
    const char *settings = getenv("ROOKERY_INTERNAL_SETTINGS");
    const char *port = settings ? strstr(settings, "\nport=") : NULL;
    if (port == NULL || argc < 2 || strncmp(argv[argc - 1], "--file=", 7) != 0) {
        fputs("the program has not passed the settings or the file\n", stderr);
        return 9;
    }
    int start = count_start();
    WSADATA data;
    WSAStartup(MAKEWORD(2, 2), &data);
    SOCKET listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(port + 6))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 16) != 0) {
        fprintf(stderr, "cannot listen: %d\n", WSAGetLastError());
        return 8;
    }
    fprintf(stderr, "listens on port %d\n", atoi(port + 6));
    for (;;) {
        SOCKET client = accept(listener, NULL, NULL);
        char request[4096] = "";
        int len = recv(client, request, sizeof request - 1, 0);
        if (len > 0 && strncmp(request, "GET /fail", 9) == 0) {
            return 3;
        }
        char response[200];
        int size = sprintf(response, "HTTP/1.0 200 OK\r\n\r\nstart %d, process %lu", start, GetCurrentProcessId());
        send(client, response, size, 0);
        closesocket(client);
    }
}
