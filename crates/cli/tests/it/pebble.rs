//! A site with a certificate from Pebble, as in a shell. tests/conformance/pebble.py builds Pebble and runs this, with its programs'
//! folder in `PEBBLE`.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, Running, ask, folder, rookery};

/// An authority and who tells it names; killed when this is dropped.
struct Pebble(Vec<Child>);

impl Drop for Pebble {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn certificate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/tls").join(name)
}

fn start(at: u16, management: u16, http: u16, tls: u16, place: &Path) -> Pebble {
    let programs =
        PathBuf::from(std::env::var_os("PEBBLE").expect("PEBBLE names the folder of its programs"));
    let config = format!(
        r#"{{"pebble": {{ "listenAddress": "127.0.0.1:{at}", "managementListenAddress": "127.0.0.1:{management}",
            "certificate": "{}", "privateKey": "{}", "httpPort": {http}, "tlsPort": {tls},
            "profiles": {{ "default": {{ "description": "the usual one", "validityPeriod": 7776000 }} }} }} }}"#,
        certificate("localhost.pem").display(),
        certificate("localhost.key").display()
    );
    let file = place.join("pebble.json");
    fs::write(&file, config).unwrap();
    let dns = free_port();
    let quiet = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let names = quiet(
        Command::new(programs.join("pebble-challtestsrv"))
            .args([
                "-defaultIPv4",
                "127.0.0.1",
                "-defaultIPv6",
                "",
                "-dnsserver",
                &format!("127.0.0.1:{dns}"),
            ])
            .args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""])
            .args(["-management", &format!("127.0.0.1:{}", free_port())]),
    );
    let pebble = quiet(
        Command::new(programs.join("pebble"))
            .arg("-config")
            .arg(&file)
            .args(["-strict", "-dnsserver", &format!("127.0.0.1:{dns}")])
            .env("PEBBLE_VA_NOSLEEP", "1"),
    );
    let it = Pebble(vec![names, pebble]);
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", at)).is_err() {
        assert!(Instant::now() < end, "Pebble does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    it
}

fn curl(words: &[&str]) -> (String, bool) {
    let done =
        Command::new("curl").args(["--silent", "--show-error"]).args(words).output().expect("curl is here");
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    (text, done.status.success())
}

#[test]
#[ignore = "needs Pebble: tests/conformance/pebble.py"]
fn a_site_gets_its_certificate_and_keeps_it() {
    let site = folder(&[("index.html", "home")]);
    let data = tempfile::tempdir().unwrap();
    let [at, management, http, tls] = [(); 4].map(|()| free_port());
    let directory = format!("https://127.0.0.1:{at}/dir");
    let ca = certificate("ca.pem").display().to_string();
    let options = [
        "--host=127.0.0.1",
        "--no-log",
        "--domain=app.example.org",
        "--agree-tos",
        "--email=me@example.org",
        &format!("--port={tls}"),
        &format!("--redirect-from={http}"),
        &format!("--acme-directory={directory}"),
        &format!("--acme-ca={ca}"),
    ];
    let serve = || {
        let mut command = rookery();
        command.arg("serve").arg(site.path()).args(options).env("R_USER_DATA_DIR", data.path());
        Running::start(&mut command)
    };
    let pebble = start(at, management, http, tls, data.path());
    let mut it = serve();
    it.await_line(&format!("Serving on https://app.example.org:{tls} "));
    it.await_line("ACME: ordering a certificate for app.example.org, from 127.0.0.1");
    it.await_line("ACME: there is a certificate for app.example.org, valid until ");
    // Whoever trusts the authority is served.
    let (root, done) = curl(&["--cacert", &ca, &format!("https://127.0.0.1:{management}/roots/0")]);
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
    assert!(moved.to_lowercase().contains(&format!("location: https://app.example.org:{tls}/a")), "{moved}");
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.said);

    // The authority is gone, and the server starts with what it has.
    drop(pebble);
    let mut it = serve();
    it.await_line("Serving on ");
    let (text, done) = get();
    assert!(done && text.ends_with("home"), "{text}");
    it.signal(libc::SIGTERM);
    assert_eq!(it.end().0.code(), Some(0), "{}", it.said);
    assert!(!it.said.contains("ordering"), "{}", it.said);
}

#[test]
fn terms_are_agreed_to_in_so_many_words() {
    let site = folder(&[("index.html", "home")]);
    let mut it = Running::start(rookery().arg("serve").arg(site.path()).args([
        "--domain",
        "app.example.org",
        "--port=0",
    ]));
    assert_eq!(it.end().0.code(), Some(2), "{}", it.said);
    assert!(
        it.said.starts_with("rookery: `--domain`: certificates come from Let's Encrypt, whose terms"),
        "{}",
        it.said
    );
    assert!(it.said.contains("they have to be agreed to, with `--agree-tos`."), "{}", it.said);
}
