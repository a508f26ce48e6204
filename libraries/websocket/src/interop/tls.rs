//! WebSocket clients over TLS.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub use tokio_rustls::rustls;

use crate::connection::{
    ClientConfig, Connection, Error, connect_tcp, establish, host_of, split_address,
};
use crate::protocol::handshake::{Established, HandshakeError};

/// Connects a WebSocket client to `wss://host[:port][/path][?query]`, as
/// [`connect`](crate::connect) does to `ws://`. `tls` has the certificate authorities that the
/// client trusts. If it offers protocols by ALPN, the only one must be `http/1.1`.
///
/// The feature `tls` chooses no cryptography: the caller enables a feature of `rustls` for that,
/// such as `ring`. `examples/wss_client.rs` makes a configuration that trusts the authorities of
/// the system.
///
/// # Errors
/// Those of [`connect`](crate::connect). [`Error::Io`] contains a [`rustls::Error`] if the TLS
/// handshake fails, for instance because the certificate is not trusted.
pub async fn connect_tls(
    address: &str,
    config: &ClientConfig,
    tls: Arc<rustls::ClientConfig>,
) -> Result<(Connection<TlsStream<TcpStream>>, Established), Error> {
    let (authority, target) = split_address(address, "wss").ok_or(Error::Address)?;
    let name = ServerName::try_from(host_of(authority).to_owned()).map_err(|_| Error::Address)?;
    let request = config.request(authority, &target).map_err(HandshakeError::Request)?;
    let connecting = async {
        let tcp = connect_tcp(authority, 443).await?;
        TlsConnector::from(tls).connect(name, tcp).await
    };
    establish(connecting, &request, config).await
}
