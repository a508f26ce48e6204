//! A static site with a certificate from Pebble. tests/conformance/pebble.py builds Pebble and runs
//! this test, with the folder of its programs in `PEBBLE`.

use rookery_test_support::tls_file;
use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::Command;

use crate::authority::{Pebble, free_port};
use crate::socket_activation::{hand_over, with_own_pid};
use crate::support::{Running, ask, folder, rookery};

fn curl(words: &[&str]) -> (String, bool) {
    let done = Command::new("curl")
        .args(["--silent", "--show-error"])
        .args(words)
        .output()
        .expect("curl is here");
    let text =
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    (text, done.status.success())
}

#[test]
#[ignore = "needs Pebble: tests/conformance/pebble.py"]
fn a_static_site_orders_and_stores_a_certificate() {
    let site = folder(&[("index.html", "home")]);
    let data = tempfile::tempdir().unwrap();
    let mut pebble = Pebble::reserve();
    let (http, tls) = (free_port(), free_port());
    let directory = pebble.directory();
    let ca = tls_file("ca.pem").display().to_string();
    let options = [
        "--host=127.0.0.1",
        "--log=none",
        "--domain=app.example.org",
        "--agree-tos",
        "--email=me@example.org",
        &format!("--port={tls}"),
        &format!("--redirect-from={http}"),
    ];
    let serve = |inherited: Vec<TcpListener>| {
        let mut command = with_own_pid(env!("CARGO_BIN_EXE_rookery").as_ref());
        command.arg("serve").arg(site.path()).args(options).env("R_USER_DATA_DIR", data.path());
        command.env("ROOKERY_ACME_DIRECTORY", &directory).env("ROOKERY_ACME_CA", &ca);
        hand_over(&mut command, inherited.into_iter().map(OwnedFd::from).collect());
        Running::start(&mut command)
    };
    // At first, a service manager has opened both ports.
    let inherited = [http, tls].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
    pebble.run((http, tls), 5, 60);
    let mut it = serve(inherited.into());
    it.await_line(&format!("Serving on https://app.example.org:{tls} "));
    it.await_line("ACME: ordering a certificate for app.example.org from 127.0.0.1");
    it.await_line("ACME: received a certificate for app.example.org, valid until ");
    // Clients that trust the authority are served.
    let (root, done) =
        curl(&["--cacert", &ca, &format!("https://127.0.0.1:{}/roots/0", pebble.management)]);
    assert!(done, "{root}");
    let trusted = data.path().join("root.pem");
    fs::write(&trusted, root).unwrap();
    let resolve = format!("app.example.org:{tls}:127.0.0.1");
    let trusted = trusted.display().to_string();
    let url = format!("https://app.example.org:{tls}/");
    let get = || curl(&["--cacert", &trusted, "--resolve", &resolve, "--include", &url]);
    let (text, done) = get();
    assert!(done && text.starts_with("HTTP/2 200") && text.ends_with("home"), "{text}");
    let moved = ask(http, "GET /a HTTP/1.1\r\nHost: app.example.org\r\nConnection: close\r\n\r\n");
    assert!(
        moved.to_lowercase().contains(&format!("location: https://app.example.org:{tls}/a")),
        "{moved}"
    );
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);

    // The authority no longer runs, and the server starts with the stored certificate.
    assert_eq!(pebble.orders(), 1);
    drop(pebble);
    let mut it = serve(Vec::new());
    it.await_line("Serving on ");
    let (text, done) = get();
    assert!(done && text.ends_with("home"), "{text}");
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.stderr);
    assert!(!it.stderr.contains("ordering"), "{}", it.stderr);
}

#[test]
fn the_terms_of_service_need_explicit_agreement() {
    let site = folder(&[("index.html", "home")]);
    let mut it = Running::start(rookery().arg("serve").arg(site.path()).args([
        "--domain",
        "app.example.org",
        "--port=0",
    ]));
    assert_eq!(it.end().0.code(), Some(2), "{}", it.stderr);
    assert!(
        it.stderr
            .starts_with("rookery: `--domain`: certificates come from Let's Encrypt, whose terms"),
        "{}",
        it.stderr
    );
    assert!(it.stderr.contains("agree to these terms with `--agree-tos`."), "{}", it.stderr);
}
