/* TLS for the load generators, by OpenSSL. The connection's descriptor identifies its TLS session
 * as well. No session is resumed, and no certificate is verified, because it is made for the run.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/types.h>

#define TLS_DESCRIPTORS 65536
static SSL_CTX *tls_context; /* NULL: plaintext HTTP */
static SSL *tls_of[TLS_DESCRIPTORS];

static void tls_begin(void) {
    tls_context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_mode(tls_context, SSL_MODE_ENABLE_PARTIAL_WRITE
        | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(tls_context, SSL_SESS_CACHE_OFF);
}

/* Performs a full handshake on a blocking descriptor. */
static int tls_connect(int fd) {
    SSL *ssl = SSL_new(tls_context);
    if (ssl == NULL || fd >= TLS_DESCRIPTORS || SSL_set_fd(ssl, fd) != 1 || SSL_connect(ssl) != 1
        || SSL_session_reused(ssl)) {
        SSL_free(ssl);
        errno = EPROTO;
        return -1;
    }
    tls_of[fd] = ssl;
    return 0;
}

static inline void tls_free(int fd) {
    SSL_free(tls_of[fd]);
    tls_of[fd] = NULL;
}

/* Converts the result of an OpenSSL call that transferred nothing into that of recv() and send().
 */
static inline ssize_t tls_result(SSL *ssl, int n) {
    int why = n > 0 ? SSL_ERROR_NONE : SSL_get_error(ssl, n);
    if (why == SSL_ERROR_NONE || why == SSL_ERROR_ZERO_RETURN) {
        return n > 0 ? n : 0;
    }
    ERR_clear_error();
    errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
    return -1;
}

/* Do what send() and recv() do, over TLS if requested. The descriptor of a TLS connection is
 * non-blocking while it echoes. */
static inline ssize_t give(int fd, const void *data, size_t length, int flags) {
    return tls_context != NULL ? tls_result(tls_of[fd], SSL_write(tls_of[fd], data, (int)length))
        : send(fd, data, length, flags);
}

static inline ssize_t get(int fd, void *data, size_t length, int flags) {
    return tls_context != NULL ? tls_result(tls_of[fd], SSL_read(tls_of[fd], data, (int)length))
        : recv(fd, data, length, flags);
}
