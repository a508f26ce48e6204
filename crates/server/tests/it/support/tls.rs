//! A server that speaks TLS, and clients that do.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rookery_exchange::Exchange;
use rookery_server::tls::{CertificatePair, Pem, Tls, TlsSettings};
use rookery_server::{Config, Limits, ListenerConfig};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::support::{App, Client, PATIENCE, echo};

/// A file of crates/server/tests/tls, see `make.sh` there.
pub(crate) fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

pub(crate) fn pair(name: &str) -> CertificatePair {
    CertificatePair {
        certificate: Pem::File(file(&format!("{name}.pem"))),
        key: Pem::File(file(&format!("{name}.key"))),
    }
}

/// TLS with the certificates of these names.
pub(crate) fn settings(names: &[&str]) -> TlsSettings {
    TlsSettings { pairs: names.iter().map(|name| pair(name)).collect(), ..TlsSettings::default() }
}

pub(crate) fn site(settings: TlsSettings) -> ListenerConfig {
    ListenerConfig { tls: Some(Tls::new(settings, |_| ()).unwrap()), ..ListenerConfig::default() }
}

/// An application for `https://localhost`.
pub(crate) fn app(limits: Limits, reply: impl FnMut(&mut Exchange) + Send + 'static) -> App {
    App::with(Config { limits, ..Config::default() }, site(settings(&["localhost"])), echo(reply))
}

/// What clients trust.
pub(crate) fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("ca.pem")).unwrap()).unwrap();
    roots
}

/// What a client trusts, and perhaps who it is.
pub(crate) fn client_config(identity: Option<&str>) -> ClientConfig {
    client_config_of(identity, rustls::DEFAULT_VERSIONS)
}

pub(crate) fn client_config_of(
    identity: Option<&str>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots());
    match identity {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let certificate = CertificateDer::from_pem_file(file(&format!("{name}.pem"))).unwrap();
            let key = PrivateKeyDer::from_pem_file(file(&format!("{name}.key"))).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    }
}

/// A session that has said nothing yet.
pub(crate) fn session(config: &Arc<ClientConfig>, name: &str) -> ClientConnection {
    ClientConnection::new(Arc::clone(config), ServerName::try_from(name.to_owned()).unwrap())
        .unwrap()
}

/// Shakes hands; an error is what the client found wrong, or the server's alert.
pub(crate) fn shake(
    address: std::net::SocketAddr,
    config: &Arc<ClientConfig>,
    name: &str,
) -> Result<Client, std::io::Error> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_nodelay(true)?;
    let mut tls = Box::new(session(config, name));
    while tls.is_handshaking() || tls.wants_write() {
        tls.complete_io(&mut socket)?;
    }
    Ok(Client { socket, tls: Some(tls), read: Vec::new() })
}

impl App {
    /// A client of `https://localhost`.
    pub(crate) fn secure(&self) -> Client {
        shake(self.address, &Arc::new(client_config(None)), "localhost").expect("a handshake")
    }
}
