//! Sends every message back. `echo_server [address] [--deflate]`
//!
//! Serves any number of connections on one thread, and prints the address that it listens on.

use rookery_websocket::protocol::DecoderLimits;
use rookery_websocket::protocol::deflate::{DeflateConfig, Takeover};
use rookery_websocket::protocol::handshake::{OriginPolicy, ServerConfig};
use rookery_websocket::{Config, Error, accept};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let mut address = "127.0.0.1:9001".to_owned();
    let mut server = ServerConfig::default().origin(OriginPolicy::Any);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--deflate" => server.deflate = Some(deflate()),
            other => other.clone_into(&mut address),
        }
    }
    let server: &'static ServerConfig = Box::leak(Box::new(server));
    let listener = TcpListener::bind(address).await?;
    println!("listening on ws://{}", listener.local_addr()?);
    loop {
        let (io, _) = listener.accept().await?;
        tokio::spawn(async move {
            if let Err(error) = echo(io, server).await {
                eprintln!("{error}");
            }
        });
    }
}

async fn echo(io: TcpStream, server: &ServerConfig) -> Result<(), Error> {
    io.set_nodelay(true)?;
    let limits = DecoderLimits::new().message(64 << 20).fragments(1 << 20);
    let (mut connection, _) = accept(io, server, Config::default().limits(limits)).await?;
    while let Some((message, mut writer)) = connection.receive().await? {
        let _ = writer.reply(message).await?;
    }
    Ok(())
}

/// Accepts what the client requests.
fn deflate() -> DeflateConfig {
    DeflateConfig::default().takeover(Takeover::Kept).threshold(0)
}
