//! A server whose certificates come from an authority, its clients, and its log.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rookery_acme::{Acme, Challenge, Renewer, RetrySchedule, Settings};
use rookery_server::tls::{Pem, Tls, TlsSettings};
use rookery_server::{Config, Listener, ListenerConfig, Redirect, Server};
use rookery_test_support::tls::accept_any_certificate;
use rookery_test_support::tls_file;
use rookery_websocket_client::Roots;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// How long anything may take on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(90);

/// The log lines of all servers in the process. Each line names the hosts of its server.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn lines() -> MutexGuard<'static, Vec<String>> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

fn notice(line: &str) {
    lines().push(line.to_owned());
}

/// Returns the log lines about a host.
pub(crate) fn logged(host: &str) -> Vec<String> {
    lines().iter().filter(|line| line.contains(host)).cloned().collect()
}

/// Waits until `found` returns a value.
pub(crate) fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "not within {TIMEOUT:?}: {what}; said: {:#?}", lines());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for a log line about a host that contains a text, and returns the line.
pub(crate) fn wait_for_line(host: &str, words: &str) -> String {
    wait_for(words, || logged(host).into_iter().find(|line| line.contains(words)))
}

/// Returns settings for a certificate from the authority at `directory`, with short waits.
pub(crate) fn settings(domains: &[&str], directory: &str, folder: &Path) -> Settings {
    Settings {
        agrees_to_terms: true,
        directory: directory.to_owned(),
        roots: Roots::Custom(tls_file("ca.pem").display().to_string()),
        retry: RetrySchedule { divisor: 60, check_interval: Duration::from_millis(200) },
        ..Settings::new(
            domains.iter().map(|name| (*name).to_owned()).collect(),
            folder.join("acme"),
        )
    }
}

/// A listening server, which has no certificate unless one is stored.
pub(crate) struct Served {
    pub(crate) acme: Acme,
    pub(crate) tls: Tls,
    pub(crate) secure: Listener,
    pub(crate) clear: Listener,
    renewer: Option<Renewer>,
    _server: Server,
}

impl Served {
    pub(crate) fn start(settings: Settings) -> Served {
        let acme = Acme::prepare(settings).unwrap();
        let tls = TlsSettings {
            pairs: acme.pairs(),
            challenges: Some(acme.challenges()),
            ..TlsSettings::default()
        };
        let tls = Tls::new(tls, notice).unwrap();
        let server = Server::with_closure_and_echo(Config::default(), |exchange| {
            exchange.begin_response(200);
            exchange.set_response_body(b"served");
        });
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let secure = server
            .listen_tcp(any, ListenerConfig { tls: Some(tls.clone()), ..ListenerConfig::default() })
            .unwrap();
        let port = secure.local_addr().unwrap().port();
        let redirect = Some(Arc::new(Redirect { tls: tls.clone(), port }));
        let clear = server
            .listen_tcp(any, ListenerConfig { redirect, ..ListenerConfig::default() })
            .unwrap();
        Served { acme, tls, secure, clear, renewer: None, _server: server }
    }

    /// Returns the path of the certificate file.
    pub(crate) fn certificate_file(&self) -> PathBuf {
        match &self.acme.pairs()[0].certificate {
            Pem::File(path) => path.clone(),
            Pem::Text(_) => unreachable!("it is a file"),
        }
    }

    pub(crate) fn ports(&self) -> (u16, u16) {
        (self.clear.local_addr().unwrap().port(), self.secure.local_addr().unwrap().port())
    }

    pub(crate) fn start_renewer(&mut self, challenges: &[Challenge]) {
        self.renewer =
            Some(self.acme.start_renewer(self.tls.clone(), challenges.to_vec(), notice).unwrap());
    }

    /// Stops the thread that renews.
    pub(crate) fn stop_renewer(&mut self) {
        self.renewer = None;
    }

    /// Connects to the server under a host name.
    pub(crate) fn connect(&self, host: &str) -> Result<Client, String> {
        Client::connect(self.secure.local_addr().unwrap(), host, None)
    }

    /// Returns the certificate that new clients get.
    pub(crate) fn shown(&self, host: &str) -> Option<Vec<u8>> {
        self.connect(host).ok().map(|client| client.certificate())
    }
}

/// A client for HTTP/1.1 over TLS.
pub(crate) struct Client(StreamOwned<ClientConnection, TcpStream>);

impl Client {
    /// Connects. Trusts `roots`, or any certificate without them.
    pub(crate) fn connect(
        address: SocketAddr,
        host: &str,
        roots: Option<RootCertStore>,
    ) -> Result<Client, String> {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap();
        let config = match roots {
            Some(roots) => builder.with_root_certificates(roots).with_no_client_auth(),
            None => accept_any_certificate(),
        };
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut socket = TcpStream::connect(address).map_err(|error| error.to_string())?;
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).map_err(|error| error.to_string())?;
        }
        Ok(Client(StreamOwned::new(tls, socket)))
    }

    pub(crate) fn certificate(&self) -> Vec<u8> {
        self.0.conn.peer_certificates().unwrap()[0].to_vec()
    }

    /// Sends a request, and reads up to the end of the body `served`.
    pub(crate) fn get(&mut self) -> String {
        self.0.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut read = Vec::new();
        let mut byte = [0];
        while !read.ends_with(b"served") {
            assert_eq!(self.0.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&read));
            read.push(byte[0]);
        }
        String::from_utf8(read).unwrap()
    }

    /// Sends a request with `Connection: close`, and returns the whole response.
    pub(crate) fn whole(mut self, path: &str) -> String {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        self.0.write_all(request.as_bytes()).unwrap();
        let mut read = String::new();
        // Go's server closes the connection without a TLS close notification.
        let _ = self.0.read_to_string(&mut read);
        read
    }
}

/// Returns root certificates in PEM as a store.
pub(crate) fn roots(pem: &[u8]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
    roots
}
