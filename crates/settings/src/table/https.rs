//! Certificates, and what clients are told about HTTPS.

use crate::kind::Kind;
use crate::setting::{Applies, Default, Former, Group, Places, Section, Setting, Shown};
use crate::{composite, derived, forms, rules};

const HTTPS: Setting = Setting {
    group: Group::Https,
    section: Section::Tls,
    is_program_variable: true,
    places: Places::PROGRAM,
    applies: Applies::AtReload,
    ..Setting::EMPTY
};

pub(super) static ROWS: [Setting; 11] = [
    Setting {
        name: "tls",
        applies: Applies::AtRestart,
        section: Section::Options,
        key: "tls",
        shown: Shown::Always,
        kind: Kind::Choice(&["dev"]),
        placeholder: "dev",
        r_argument: "serve(tls)",
        help: "HTTPS with a self-signed certificate for localhost: dev",
        paragraph: "`dev` makes a certificate for `localhost`, `127.0.0.1` and `::1` once and keeps it in \
                    R's user data folder. In `_server.yml`, `tls:` may also be a mapping of the HTTPS \
                    settings. The mapping counts as one value: certificates on the command line replace \
                    all of it.",
        excludes: &["tls_cert", "domain"],
        ..HTTPS
    },
    Setting {
        name: "tls_cert",
        key: "cert",
        shown: Shown::Always,
        kind: Kind::Paths,
        placeholder: "file",
        r_argument: "tls_config(cert)",
        help: "Certificate chain in PEM; may be repeated",
        paragraph: "The server's own certificate comes first in a file, followed by the intermediate \
                    certificates. With several files, the host name that the client asks for selects the \
                    certificate; a client that asks for none of the names gets the first. The files are \
                    checked for changes every ten seconds, and at once after SIGHUP.",
        excludes: &["domain"],
        ..HTTPS
    },
    Setting {
        name: "tls_key",
        key: "key",
        shown: Shown::Always,
        kind: Kind::Paths,
        placeholder: "file",
        default: Default::Derived {
            text: "the file of `tls_cert`",
            value: derived::found_at_start,
        },
        r_argument: "tls_config(key)",
        help: "Private key in PEM, if it is not in the certificate's file",
        paragraph: "One for each certificate, in the same order. Without it the key is expected in the \
                    certificate's file.",
        needs: &["tls_cert"],
        rule: Some(rules::one_key_for_each_certificate),
        ..HTTPS
    },
    Setting {
        name: "tls_password",
        key: "password",
        kind: Kind::Text(&forms::SECRET),
        places: Places::R,
        r_argument: "tls_config(password)",
        is_secret: true,
        help: "Password of an encrypted private key",
        paragraph: "A string, or a function without arguments that returns it. It exists in R only, \
                    because a secret belongs in no file that is deployed and in no list of processes.",
        ..HTTPS
    },
    Setting {
        name: "tls_client_ca",
        key: "client_ca",
        shown: Shown::InLongHelp,
        kind: Kind::Path,
        placeholder: "file",
        r_argument: "tls_config(client_ca)",
        help: "Request client certificates signed by these authorities",
        paragraph: "Clients are asked for a certificate that one of these authorities has signed; the \
                    app sees it as `TLS_CLIENT_SUBJECT` and `TLS_CLIENT_FINGERPRINT`.",
        needs: &["tls_cert", "domain"],
        ..HTTPS
    },
    Setting {
        name: "tls_client_auth",
        key: "client_auth",
        shown: Shown::InLongHelp,
        kind: Kind::Choice(&["required", "optional"]),
        placeholder: "how",
        default: Default::Is("required"),
        r_argument: "tls_config(client_auth)",
        help: "Whether clients must present a certificate: required, optional",
        paragraph: "`required` refuses clients without a certificate; `optional` asks for one. It needs \
                    `tls_client_ca`.",
        needs: &["tls_client_ca"],
        ..HTTPS
    },
    Setting {
        name: "tls_min_version",
        key: "min_version",
        shown: Shown::InLongHelp,
        kind: Kind::Choice(&["1.2", "1.3"]),
        placeholder: "version",
        default: Default::Is("1.2"),
        r_argument: "tls_config(min_version)",
        help: "Oldest TLS version that is accepted: 1.2 or 1.3",
        paragraph: "Clients that offer older versions only are refused.",
        needs: &["tls_cert", "domain"],
        ..HTTPS
    },
    Setting {
        name: "http2",
        key: "http2",
        shown: Shown::InLongHelp,
        kind: Kind::Flag,
        default: Default::Is("on"),
        r_argument: "tls_config(http2)",
        help: "Offer HTTP/2 over TLS; on by default, --no-http2 turns it off",
        paragraph: "Clients that do not support HTTP/2 get HTTP/1.1 in any case, and requests look the \
                    same to R.",
        needs: &["tls_cert", "domain"],
        ..HTTPS
    },
    Setting {
        name: "http2_websockets",
        applies: Applies::AtRestart,
        key: "http2_websockets",
        kind: Kind::Flag,
        default: Default::Is("on"),
        places: Places::FILE.and(Places::R),
        r_argument: "tls_config(http2_websockets)",
        help: "Accept WebSockets over HTTP/2 (RFC 8441)",
        paragraph: "Browsers then open WebSockets within the connection that the page came by. Turn it \
                    off only to work around a faulty client or proxy.",
        needs: &["tls_cert", "domain"],
        former: &[Former {
            value: Some("off"),
            ..Former::option(
                "no_http2_websockets",
                "it works around a faulty client or proxy, which a file says once",
            )
        }],
        ..HTTPS
    },
    Setting {
        name: "hsts",
        applies: Applies::AtRestart,
        key: "hsts",
        shown: Shown::Always,
        kind: Kind::Composite(&composite::HSTS),
        placeholder: "seconds",
        default: Default::Is("off"),
        r_argument: "tls_config(hsts)",
        help: "Strict-Transport-Security: SECONDS[,subdomains][,preload]",
        paragraph: "Browsers then use HTTPS only until the time has passed, even if the server no longer \
                    offers HTTPS: begin with minutes. `subdomains` includes subdomains; `preload` needs \
                    `subdomains` and at least a year. 0 makes browsers forget the host.",
        needs: &["tls_cert", "domain"],
        ..HTTPS
    },
    Setting {
        name: "redirect_from",
        applies: Applies::AtRestart,
        key: "redirect_from",
        shown: Shown::Always,
        kind: Kind::Count,
        placeholder: "port",
        words: &["none"],
        default: Default::Derived {
            text: "80 with `domain` and no `port`, else none",
            value: derived::redirect_from,
        },
        min: 1.0,
        max: 65_535.0,
        r_argument: "tls_config(redirect_from)",
        help: "Port whose HTTP requests are redirected to HTTPS, or none",
        paragraph: "The port is opened on the same address. Requests are redirected with status 308. With \
                    `domain` and without `port` the default is 80, where certificate authorities look for \
                    the response to the `http-01` challenge.",
        needs: &["tls_cert", "domain"],
        rule: Some(rules::redirects_need_a_port),
        ..HTTPS
    },
];
