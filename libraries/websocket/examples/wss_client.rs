//! Sends a text to a server over TLS and prints the server's first message: `wss_client URL TEXT`
//!
//! The certificate authorities are those in the PEM file that the environment variable
//! `SSL_CERT_FILE` names, or otherwise those of Debian.

use std::error::Error;
use std::sync::Arc;

use rookery_websocket::protocol::CloseCode;
use rookery_websocket::rustls::crypto::ring::default_provider;
use rookery_websocket::rustls::pki_types::{CertificateDer, pem::PemObject};
use rookery_websocket::rustls::{self, RootCertStore};
use rookery_websocket::{ClientConfig, connect_tls};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, text] = &arguments[..] else { return Err("wss_client URL TEXT".into()) };
    let (mut connection, _) = connect_tls(url, &ClientConfig::default(), tls()?).await?;
    let _ = connection.send(&**text).await?;
    if let Some(message) = connection.read().await? {
        println!("{}", message.as_text().unwrap_or("a binary message"));
    }
    connection.close(CloseCode::NORMAL, "").await?;
    Ok(())
}

/// Returns a TLS configuration that trusts the system's certificate authorities.
fn tls() -> Result<Arc<rustls::ClientConfig>, Box<dyn Error>> {
    let file = std::env::var("SSL_CERT_FILE")
        .unwrap_or_else(|_| "/etc/ssl/certs/ca-certificates.crt".to_owned());
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_file_iter(file)?.flatten());
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
