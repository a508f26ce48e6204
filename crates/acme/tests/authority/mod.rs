//! Pebble, Let's Encrypt's small authority for tests, and the files that tests of two crates need
//! for it.
//!
//! tests/conformance/pebble.py builds Pebble and runs the tests that need it, with the folder of
//! its programs in `PEBBLE`.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rookery_test_support::tls_file;
use tempfile::TempDir;

/// How long Pebble may take to listen on a busy machine.
const START: Duration = Duration::from_secs(90);

/// Returns a free port outside the range that the system uses for clients and for port 0. Each port
/// is returned at most once.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let at =
            std::process::id().wrapping_mul(97).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + at % COUNT).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A running authority, and a DNS server that resolves all names to this machine. Dropping this
/// kills both.
pub(crate) struct Pebble {
    folder: TempDir,
    children: Vec<Child>,
    port: u16,
    /// The port that serves the root certificate.
    pub(crate) management: u16,
}

impl Pebble {
    /// Reserves the ports.
    pub(crate) fn reserve() -> Pebble {
        let folder = tempfile::tempdir().unwrap();
        Pebble { folder, children: Vec::new(), port: free_port(), management: free_port() }
    }

    pub(crate) fn directory(&self) -> String {
        format!("https://127.0.0.1:{}/dir", self.port)
    }

    /// Starts Pebble. It validates hosts on the given ports, rejects `refused_nonces` percent of
    /// the nonces, and its certificates with the profile `brief` are valid for `brief` seconds.
    pub(crate) fn run(&mut self, (http, tls): (u16, u16), refused_nonces: u8, brief: u32) {
        let programs = std::env::var_os("PEBBLE")
            .map(PathBuf::from)
            .expect("PEBBLE names the folder of its programs");
        let path = |name: &str| tls_file(name).display().to_string();
        let config = format!(
            r#"{{"pebble": {{
                "listenAddress": "127.0.0.1:{}", "managementListenAddress": "127.0.0.1:{}",
                "certificate": "{}", "privateKey": "{}", "httpPort": {http}, "tlsPort": {tls},
                "externalAccountBindingRequired": false, "retryAfter": {{ "authz": 1, "order": 1 }},
                 "keyAlgorithm": "ecdsa",
                "profiles": {{
                    "default": {{ "description": "the usual one", "validityPeriod": 7776000 }},
                    "brief": {{ "description": "for seconds", "validityPeriod": {brief} }}
                }}
            }}}}"#,
            self.port,
            self.management,
            path("localhost.pem"),
            path("localhost.key")
        );
        let file = self.folder.path().join("pebble.json");
        fs::write(&file, config).unwrap();
        let dns = free_port();
        let log =
            || Stdio::from(File::options().create(true).append(true).open(self.log()).unwrap());
        let names = Command::new(programs.join("pebble-challtestsrv"))
            .args([
                "-defaultIPv4",
                "127.0.0.1",
                "-defaultIPv6",
                "",
                "-dnsserver",
                &format!("127.0.0.1:{dns}"),
            ])
            .args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""])
            .args(["-management", &format!("127.0.0.1:{}", free_port())])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let pebble = Command::new(programs.join("pebble"))
            .arg("-config")
            .arg(&file)
            .args(["-strict", "-dnsserver", &format!("127.0.0.1:{dns}")])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_WFE_NONCEREJECT", refused_nonces.to_string())
            .env("PEBBLE_AUTHZREUSE", "0")
            .stdout(log())
            .stderr(log())
            .spawn();
        self.children.extend([names.unwrap(), pebble.unwrap()]);
        let end = Instant::now() + START;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < end, "Pebble does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn end(&mut self) {
        for mut child in self.children.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("pebble.log")
    }

    /// Returns the number of orders so far.
    pub(crate) fn orders(&self) -> usize {
        fs::read_to_string(self.log()).unwrap().matches(" orders in the db").count()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.end();
    }
}
