//! Common client programs (curl, openssl, nghttp) over TLS and HTTP/2.

use std::path::Path;
use std::process::{Command, Stdio};

use rookery_exchange::Exchange;
use rookery_server::tls::{Pem, TlsSettings};
use rookery_server::{Config, Limits};
use rookery_test_support::tls_file;

use crate::support::tls::{app, settings, site};
use crate::support::{App, echo, hello};

/// Returns what a program writes to both its outputs, or `None` if it is not installed.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let Ok(output) = command.output() else {
        println!("NOT TESTED: there is no {program}");
        return None;
    };
    Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// Returns the response to a request by curl for `/`, followed by the version of HTTP and the
/// status.
fn curl(app: &App, arguments: &[&str]) -> Option<String> {
    let port = app.address.port();
    let (resolve, ca) = (format!("localhost:{port}:127.0.0.1"), path("ca.pem"));
    let usual =
        ["-sS", "--resolve", &resolve, "--cacert", &ca, "-w", " %{http_version} %{http_code}"];
    said("curl", &[&usual, arguments, &[&format!("https://localhost:{port}/")]].concat())
}

fn path(name: &str) -> String {
    tls_file(name).display().to_string()
}

/// Responds with the client's certificate and the scheme.
fn who(exchange: &mut Exchange) {
    let subject = exchange.client().map_or("nobody", |client| client.subject.as_str()).to_owned();
    let scheme = if exchange.is_https() { "https" } else { "http" };
    exchange.begin_response(200);
    exchange.set_response_body(format!("{subject} {scheme}").as_bytes());
}

#[test]
fn curl_shows_who_it_is_over_both_versions() {
    let client_ca = Some(Pem::File(tls_file("ca.pem")));
    let settings = TlsSettings { client_ca, client_is_optional: true, ..settings(&["localhost"]) };
    let app = App::with(Config::default(), site(settings), echo(who));
    let (certificate, key) = (path("client.pem"), path("client.key"));
    for (option, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        for old in [&[][..], &["--tlsv1.2", "--tls-max", "1.2"]] {
            let shown = ["--cert", &certificate, "--key", &key];
            let Some(found) = curl(&app, &[&[option], old, &shown[..]].concat()) else { return };
            assert_eq!(
                found,
                format!("CN=Ada,O=Engines\\, Analytical,C=GB https {version} 200"),
                "{old:?}"
            );
            let found = curl(&app, &[&[option], old].concat()).unwrap();
            assert_eq!(found, format!("nobody https {version} 200"), "{old:?}");
        }
    }
}

#[test]
fn curl_reads_why_it_is_refused_over_http_2() {
    let limits = Limits { max_body_size: 100_000, ..Limits::default() };
    let app = app(limits, hello);
    let folder = tempfile::tempdir().unwrap();
    let (large, line) = (folder.path().join("large"), folder.path().join("line"));
    std::fs::write(&large, vec![7; 1_000_000]).unwrap();
    std::fs::write(&line, format!("X-Large: {}", "b".repeat(40_000))).unwrap();
    let of = |file: &Path| format!("@{}", file.display());
    let Some(found) = curl(&app, &["--http2", "--data-binary", &of(&large)]) else { return };
    assert_eq!(found, "413 Content Too Large\n 2 413");
    let found = curl(&app, &["--http2", "-H", &of(&line)]).unwrap();
    assert_eq!(found, "431 Request Header Fields Too Large\n 2 431");
    assert_eq!(app.requests(), 0);
}

#[test]
fn openssl_resumes_and_sends_nothing_early() {
    let app = App::with(Config::default(), site(settings(&["localhost", "other"])), echo(hello));
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (session, request) = (place("session"), place("request"));
    let get = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    std::fs::write(&request, get).unwrap();
    let s_client = |arguments: &[&str]| {
        let mut command = Command::new("openssl");
        command.args([
            "s_client",
            "-connect",
            &app.address.to_string(),
            "-CAfile",
            &path("ca.pem"),
            "-ign_eof",
        ]);
        command.args(arguments).stdin(std::fs::File::open(&request).unwrap());
        let Ok(output) = command.output() else {
            println!("NOT TESTED: there is no openssl");
            return None;
        };
        let text = [output.stdout, output.stderr].concat();
        // Versions of OpenSSL before 3.2 write names with spaces around the equals sign.
        Some(String::from_utf8_lossy(&text).replace(" = ", "="))
    };
    for version in ["-tls1_3", "-tls1_2"] {
        let Some(first) = s_client(&[version, "-servername", "localhost", "-sess_out", &session])
        else {
            return;
        };
        assert!(first.contains("New, TLSv1") && first.contains("Hello, World!"), "{first}");
        let again = s_client(&[version, "-servername", "localhost", "-sess_in", &session]).unwrap();
        assert!(again.contains("Reused, TLSv1") && again.contains("Hello, World!"), "{again}");
    }
    // The server's tickets do not allow early data, which anyone could replay (RFC 8470).
    s_client(&["-tls1_3", "-servername", "localhost", "-sess_out", &session]).unwrap();
    let early =
        ["-tls1_3", "-servername", "localhost", "-sess_in", &session, "-early_data", &request];
    let found = s_client(&early).unwrap();
    assert!(
        found.contains("Early data was not sent") || found.contains("Early data was rejected"),
        "{found}"
    );
    // The certificate is chosen by the client's server name, and the protocol from those that it
    // offers.
    let found = s_client(&["-servername", "example.test"]).unwrap();
    assert!(found.contains("subject=CN=other"), "{found}");
    let found = s_client(&["-servername", "localhost", "-alpn", "h2,http/1.1"]).unwrap();
    assert!(
        found.contains("subject=CN=localhost") && found.contains("ALPN protocol: h2"),
        "{found}"
    );
}

#[test]
fn nghttp_sees_what_was_decided() {
    let app = app(Limits::default(), hello);
    let url = format!("https://127.0.0.1:{}/", app.address.port());
    let Some(found) = said("nghttp", &["-nv", &url]) else { return };
    for expected in [
        "[SETTINGS_MAX_CONCURRENT_STREAMS(0x03):100]",
        "[SETTINGS_INITIAL_WINDOW_SIZE(0x04):262144]",
        // Twice the limit, so that requests between the two get a response.
        "[SETTINGS_MAX_HEADER_LIST_SIZE(0x06):65536]",
        "(0x08):1]",
        ":status: 200",
        "recv DATA frame",
    ] {
        assert!(found.contains(expected), "{found}\nhas no {expected}");
    }
    assert!(!found.contains("recv GOAWAY"), "{found}");
}

#[test]
fn h2load_loses_nothing() {
    let app = app(Limits::default(), hello);
    let url = format!("https://127.0.0.1:{}/", app.address.port());
    let Some(found) = said("h2load", &["-n", "2000", "-c", "10", "-m", "10", &url]) else { return };
    assert!(found.contains("2000 done, 2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{found}");
    assert!(found.contains("Application protocol: h2"), "{found}");
}
