//! Configurations of TLS clients for tests.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};

use crate::tls_file;

/// Returns a store with the root certificate that has signed the test certificates.
pub fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(tls_file("ca.pem")).expect("a certificate");
    roots.add(root).expect("a root certificate");
    roots
}

/// Returns the configuration of a TLS client that trusts [`roots`]. `identity` is the name of the
/// client's own certificate, or `None` for a client without one.
pub fn client_config(identity: Option<&str>) -> ClientConfig {
    client_config_with_versions(identity, rustls::DEFAULT_VERSIONS)
}

/// Returns the configuration of a TLS client that trusts [`roots`] and supports only the TLS
/// versions in `versions`. `identity` is the name of the client's own certificate, or `None` for a
/// client without one.
///
/// # Panics
/// Panics if there is no certificate with the name `identity`.
pub fn client_config_with_versions(
    identity: Option<&str>,
    versions: &[&'static SupportedProtocolVersion],
) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .expect("versions that the provider supports")
        .with_root_certificates(roots());
    let Some(name) = identity else { return builder.with_no_client_auth() };
    let certificate = CertificateDer::from_pem_file(tls_file(&format!("{name}.pem")));
    let key = PrivateKeyDer::from_pem_file(tls_file(&format!("{name}.key"))).expect("a key");
    builder
        .with_client_auth_cert(vec![certificate.expect("a certificate")], key)
        .expect("a certificate with its key")
}

/// Returns the configuration of a TLS client that accepts any server certificate.
pub fn accept_any_certificate() -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions that the provider supports")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAny))
        .with_no_client_auth()
}

#[derive(Debug)]
struct AcceptAny;

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
