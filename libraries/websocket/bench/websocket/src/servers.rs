//! Echo servers of one thread, each used as its documentation describes.

use std::io;

use fastwebsockets::{FragmentCollector, OpCode, Role, WebSocket};
use futures_util::{SinkExt as _, StreamExt as _};
use rookery_websocket::protocol::DecoderLimits;
use rookery_websocket::protocol::deflate::DeflateConfig;
use rookery_websocket::protocol::handshake::{OriginPolicy, ServerConfig};
use rookery_websocket::{Config, accept};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_websockets::ServerBuilder;

/// The servers in this binary.
pub const NAMES: &[&str] = &["ours", "fastwebsockets", "tokio-websockets", "tungstenite"];

/// Serves for ever on a free port, which it prints.
pub fn serve(name: &str, deflates: bool) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server: &'static ServerConfig = Box::leak(Box::new(
        ServerConfig::default()
            .origin(OriginPolicy::Any)
            .deflate(deflates.then(DeflateConfig::default)),
    ));
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?.port());
        loop {
            let (io, _) = listener.accept().await?;
            io.set_nodelay(true)?;
            match name {
                "ours" => drop(tokio::spawn(ours(io, server))),
                "fastwebsockets" => drop(tokio::spawn(fast(io))),
                "tokio-websockets" => drop(tokio::spawn(tokio_ws(io))),
                "tungstenite" => drop(tokio::spawn(tungstenite(io))),
                other => return Err(io::Error::other(format!("no server {other}"))),
            }
        }
    })
}

async fn ours(io: TcpStream, server: &ServerConfig) {
    let config = Config::default().limits(DecoderLimits::default().message(1 << 20));
    let Ok((mut connection, _)) = accept(io, server, config).await else { return };
    while let Ok(Some((message, mut writer))) = connection.receive().await {
        if writer.reply(message).await.is_err() {
            return;
        }
    }
}

async fn fast(mut io: TcpStream) {
    // Its own handshake needs hyper. This one costs nothing per message as well.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if !io.read_buf(&mut head).await.is_ok_and(|n| n > 0) {
            return;
        }
    }
    let config = ServerConfig::default().origin(OriginPolicy::Any);
    let Ok(accepted) = config.answer_head(&head) else { return };
    let mut response = Vec::new();
    accepted.write_response(&mut response);
    if io.write_all(&response).await.is_err() {
        return;
    }
    drop((head, response, config));
    let mut socket = FragmentCollector::new(WebSocket::after_handshake(io, Role::Server));
    while let Ok(frame) = socket.read_frame().await {
        match frame.opcode {
            OpCode::Text | OpCode::Binary => {
                if socket.write_frame(frame).await.is_err() {
                    return;
                }
            }
            OpCode::Close => return,
            _ => {}
        }
    }
}

async fn tokio_ws(io: TcpStream) {
    let config = tokio_websockets::Config::default().frame_size(usize::MAX);
    let Ok((_, mut socket)) = ServerBuilder::new().config(config).accept(io).await else { return };
    while let Some(Ok(message)) = socket.next().await {
        if !(message.is_text() || message.is_binary()) {
            continue;
        }
        if socket.send(message).await.is_err() {
            return;
        }
    }
}

async fn tungstenite(io: TcpStream) {
    let Ok(mut socket) = tokio_tungstenite::accept_async(io).await else { return };
    while let Some(Ok(message)) = socket.next().await {
        if !(message.is_text() || message.is_binary()) {
            continue;
        }
        if socket.send(message).await.is_err() {
            return;
        }
    }
}
