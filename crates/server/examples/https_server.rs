//! Answers every request over HTTPS, by HTTP/2 or HTTP/1.1, with a certificate that is made for it. tests/conformance/h2spec.py plays
//! h2spec against it.
//!
//! ```sh
//! cargo run --release -p rookery-server --example https_server -- 127.0.0.1:8443 /tmp/certificate
//! ```

use std::path::Path;
use std::time::Duration;

use rookery_exchange::Exchange;
use rookery_server::tls::{CertificatePair, DevelopmentCertificate, Pem, Tls, TlsSettings};
use rookery_server::{Config, Server, Site};

fn hello(exchange: &mut Exchange) {
    exchange.begin_reply(200);
    // A name and a value of this file's are valid.
    let _ = exchange.push_reply_header(b"Content-Type", b"text/plain");
    exchange.set_reply_body(b"Hello, World!");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, address, folder] = &arguments[..] else {
        return Err("an address and a folder for the certificate are needed".into());
    };
    let certificate = DevelopmentCertificate::keep(Path::new(folder))?;
    let pem = Pem::File(certificate.file);
    let pairs = vec![CertificatePair { certificate: pem.clone(), key: pem }];
    let tls = Tls::new(TlsSettings { pairs, ..TlsSettings::default() }, |text| eprintln!("{text}"))?;
    let server = Server::answering(Config::default(), hello);
    let listener = server.listen_tcp(address.parse()?, Site { tls: Some(tls), ..Site::default() })?;
    if let Some(address) = listener.local_addr() {
        println!("listening on {address}");
    }
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}
