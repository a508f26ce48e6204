//! Answers every request over HTTPS, by HTTP/2 or HTTP/1.1, with a certificate that is made for it,
//! and echoes the messages of WebSockets over both. What tests/conformance plays against the server
//! meets this one.
//!
//! ```sh
//! cargo run --release -p rookery-server --example https_server -- 127.0.0.1:8443 /tmp/certificate
//! ```

use std::path::Path;
use std::time::Duration;

use rookery_exchange::{AppWaker, Command, Event, Exchange, WebSocketCompression};
use rookery_server::tls::{CertificatePair, DevelopmentCertificate, Pem, Tls, TlsSettings};
use rookery_server::{Config, ListenerConfig, Server};

/// The application is a thread that waits for the link.
struct NoWaker;

impl AppWaker for NoWaker {
    fn wake(&self) {}
}

/// Messages are compressed for whoever offers it.
const COMPRESSION: WebSocketCompression =
    WebSocketCompression { level: 6, threshold: 0, keeps_window: true };

fn hello(exchange: &mut Exchange) {
    exchange.begin_response(200);
    // A name and a value of this file's are valid.
    let _ = exchange.push_response_header(b"Content-Type", b"text/plain");
    exchange.set_response_body(b"Hello, World!");
}

fn answer(event: Event) -> Option<Command> {
    match event {
        Event::Request(mut exchange) => {
            if exchange.is_upgrade() {
                exchange.begin_response(101);
                exchange.response_mut().set_compression(COMPRESSION);
            } else {
                hello(&mut exchange);
            }
            Some(Command::Respond(exchange))
        }
        Event::Head(exchange) => Some(Command::ReadBody(exchange)),
        Event::Message { socket, kind, payload, .. } => {
            Some(Command::Send { socket, kind, payload })
        }
        _ => None,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, address, folder] = &arguments[..] else {
        return Err("an address and a folder for the certificate are needed".into());
    };
    let certificate = DevelopmentCertificate::load_or_create(Path::new(folder))?;
    let pem = Pem::File(certificate.file);
    let pairs = vec![CertificatePair { certificate: pem.clone(), key: pem }];
    let tls =
        Tls::new(TlsSettings { pairs, ..TlsSettings::default() }, |text| eprintln!("{text}"))?;
    let server = Server::new(Config::default(), Box::new(NoWaker));
    let listener = server.listen_tcp(
        address.parse()?,
        ListenerConfig { tls: Some(tls), ..ListenerConfig::default() },
    )?;
    if let Some(address) = listener.local_addr() {
        println!("listening on {address}");
    }
    loop {
        server.link().wait(Duration::from_secs(1));
        while let Some(event) = server.link().next() {
            if let Some(command) = answer(event) {
                server.link().send(command);
            }
        }
    }
}
