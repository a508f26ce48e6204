//! The settings of certificates and HTTPS, as rows of the table of settings.

use crate::composite;
use crate::kind::Kind;
use crate::setting::{Applies, Default, Group, Places, Section, Setting};

const HTTPS: Setting = Setting {
    r_function: "tls_config",
    group: Group::Https,
    section: Section::Tls,
    places: Places::PROGRAM,
    applies: Applies::AtReload,
    ..Setting::EMPTY
};

pub(super) static ROWS: [Setting; 9] = [
    Setting {
        name: "tls",
        applies: Applies::AtRestart,
        section: Section::Options,
        is_common: true,
        kind: Kind::Choice(&["dev"]),
        r_function: "serve",
        help: "Serve HTTPS with a self-signed certificate (the only value is dev)",
        paragraph: "With the value dev, the server uses a certificate for `localhost`, `127.0.0.1` \
                    and `::1`, which is only for development. The certificate is created once and \
                    kept in R's user data folder. Browsers warn about it until you mark it as \
                    trusted. In `_server.yml`, `tls:` may instead be a mapping with the other \
                    HTTPS settings. Certificates that are given on the command line replace the \
                    whole mapping.",
        excludes: &["tls_cert", "domain"],
        ..HTTPS
    },
    Setting {
        name: "tls_cert",
        is_common: true,
        kind: Kind::Paths,
        help: "Certificate chain as a PEM file; may be repeated",
        paragraph: "Turns HTTPS on. The file contains the server's certificate, followed by the \
                    intermediate certificates. If there are several files, the server selects the \
                    certificate by the host name in the client's TLS handshake (SNI), and uses the \
                    first certificate for any other host name. The server checks the files for \
                    changes every ten seconds, and reads them again at once after SIGHUP.",
        excludes: &["domain"],
        ..HTTPS
    },
    Setting {
        name: "tls_key",
        is_common: true,
        kind: Kind::Paths,
        default: Default::Derived("the file of `tls_cert`"),
        help: "Private key as a PEM file, if not in the certificate's file",
        paragraph: "For several certificates, give one key for each, in the same order: repeat the \
                    option, or give a list in `_server.yml` or a vector in R.",
        needs: &["tls_cert"],
        ..HTTPS
    },
    Setting {
        name: "tls_client_ca",
        kind: Kind::Path,
        help: "PEM file with the CA certificates that verify clients",
        paragraph: "Turns on mutual TLS: the server requests from each client a certificate that \
                    is signed by one of these certificate authorities. The app sees the client's \
                    certificate as `TLS_CLIENT_SUBJECT` and `TLS_CLIENT_FINGERPRINT`. \
                    `tls_client_auth` decides whether clients without a certificate are refused.",
        needs: &["tls_cert", "domain"],
        ..HTTPS
    },
    Setting {
        name: "tls_client_auth",
        kind: Kind::Choice(&["required", "optional"]),
        default: Default::Is("required"),
        help: "Whether client certificates are required or optional",
        paragraph: "`required` refuses connections without a client certificate. `optional` \
                    requests a certificate, but also serves clients that have none. This setting \
                    needs `tls_client_ca`, which turns on the verification of clients.",
        needs: &["tls_client_ca"],
        ..HTTPS
    },
    Setting {
        name: "tls_min_version",
        kind: Kind::Choice(&["1.2", "1.3"]),
        default: Default::Is("1.2"),
        help: "Oldest TLS version that clients may use: 1.2 or 1.3",
        paragraph: "The server refuses TLS connections from clients that support only older \
                    versions.",
        needs: &["tls_cert", "domain"],
        ..HTTPS
    },
    Setting {
        name: "http2",
        kind: Kind::Flag,
        default: Default::Is("on"),
        help: "HTTP/2 over TLS, which is on by default. --no-http2 turns it off",
        paragraph: "With HTTP/2, browsers send all their requests over one connection. Clients \
                    that do not support HTTP/2 use HTTP/1.1. The app gets the same request \
                    objects with either version. `--no-http2=off` leaves HTTP/2 on.",
        needs: &["tls_cert", "domain"],
        ..HTTPS
    },
    Setting {
        name: "hsts",
        applies: Applies::AtRestart,
        is_common: true,
        kind: Kind::Composite(&composite::HSTS),
        default: Default::Is("off"),
        help: "Send Strict-Transport-Security: SECONDS[,subdomains][,preload]",
        paragraph: "The header tells browsers to use only HTTPS for this host for the given number \
                    of seconds. They do so even if the server no longer offers HTTPS, so begin \
                    with a few minutes. `subdomains` includes all subdomains. `preload` allows \
                    browser vendors to build this rule into their browsers; it needs `subdomains` \
                    and at least a year (31536000). 0 makes browsers forget the rule.",
        needs: &["tls_cert", "domain"],
        ..HTTPS
    },
    Setting {
        name: "redirect_from",
        applies: Applies::AtRestart,
        is_common: true,
        kind: Kind::Count,
        placeholder: "port",
        words: &["none"],
        default: Default::Derived("80 with `domain` and without `port`, else none"),
        min: 1.0,
        max: 65_535.0,
        help: "Port whose HTTP requests are redirected to HTTPS, or none",
        paragraph: "The server also listens on this port at the same address, and redirects \
                    plaintext HTTP requests to HTTPS with status 308. If `domain` is set and \
                    `port` is not, the default is 80, because certificate authorities send the \
                    requests of the `http-01` challenge to port 80.",
        needs: &["tls_cert", "domain"],
        ..HTTPS
    },
];
