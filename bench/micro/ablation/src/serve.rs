//! Servers without R, whose time would hide the costs of the network code.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use rookery_exchange::{AppWaker, Command, Event};
use rookery_server::{ListenerConfig, Server};
use rookery_websocket::protocol::handshake::{OriginPolicy, ServerConfig};
use rookery_websocket::{Config, Error, accept};
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Status 200 and thirteen bytes.
    Hello,
    /// Status 200 and thirteen bytes, and each response is reported to the request's hook as a
    /// failure of the application.
    Failure,
    /// WebSocket messages are sent back.
    Echo,
}

impl Workload {
    pub fn named(name: &str) -> Option<Workload> {
        match name {
            "hello" => Some(Workload::Hello),
            "failure" => Some(Workload::Failure),
            "ws" => Some(Workload::Echo),
            _ => None,
        }
    }
}

pub fn run(port: u16, workload: Workload) -> io::Result<()> {
    match workload {
        Workload::Hello | Workload::Failure => answer(port, workload == Workload::Failure),
        Workload::Echo => echo(port),
    }
}

/// A waker that does nothing, because the application waits on the link.
struct NeverParked;

impl AppWaker for NeverParked {
    fn wake(&self) {}
}

/// Responds on the main thread to requests from the server's I/O thread.
fn answer(port: u16, fails: bool) -> io::Result<()> {
    let server = Server::new(rookery_server::Config::default(), Box::new(NeverParked));
    let _listener = server
        .listen_tcp((Ipv4Addr::LOCALHOST, port).into(), ListenerConfig::default())
        .map_err(io::Error::other)?;
    loop {
        server.link().wait(Duration::from_secs(1));
        while let Some(event) = server.link().next() {
            let Event::Request(mut exchange) = event else { continue };
            exchange.begin_response(200);
            let header = exchange.push_response_header(b"Content-Type", b"text/plain");
            header.map_err(io::Error::other)?;
            exchange.set_response_body(b"Hello, World!");
            if fails {
                exchange.response_mut().set_failure();
            }
            server.link().send(Command::Respond(exchange));
        }
    }
}

/// Runs only the WebSocket crate, on one thread.
fn echo(port: u16) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(async move {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let config: &'static ServerConfig =
            Box::leak(Box::new(ServerConfig::default().origin(OriginPolicy::Any)));
        loop {
            let (io, _) = listener.accept().await?;
            // A generator that disconnects is not an error.
            tokio::task::spawn_local(async move { serve(io, config).await.ok() });
        }
    }))
}

async fn serve(io: TcpStream, config: &ServerConfig) -> Result<(), Error> {
    io.set_nodelay(true).ok();
    let (mut connection, _) = accept(io, config, Config::default()).await?;
    while let Some((message, mut writer)) = connection.receive().await? {
        let _ = writer.reply(message).await?;
    }
    Ok(())
}
