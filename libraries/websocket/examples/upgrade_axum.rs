//! A server of axum with a route for WebSockets, whose messages it echoes.
//!
//! `upgrade_axum [address]` prints the address that it listens on.

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, UPGRADE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper_util::rt::TokioIo;
use rookery_websocket::protocol::handshake::ServerConfig;
use rookery_websocket::{Config, Connection, Error, Parts};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9001".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on ws://{}", listener.local_addr()?);
    axum::serve(listener, Router::new().route("/", get(upgrade))).await
}

/// Answers a handshake request without subprotocols and compression; `upgrade_hyper.rs` also has
/// these.
async fn upgrade(mut request: Request) -> Response {
    let fields = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let accepted = match ServerConfig::default().answer(fields) {
        Ok(accepted) => accepted,
        Err(refusal) => {
            let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::BAD_REQUEST);
            return (status, format!("{refusal}\n")).into_response();
        }
    };
    // Is ready when the response is written.
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(io) = upgraded.await else { return };
        let connection = Parts::server(TokioIo::new(io)).connection(Config::default());
        if let Err(error) = echo(connection).await {
            eprintln!("{error}");
        }
    });
    let headers = [(CONNECTION, "Upgrade"), (UPGRADE, "websocket")];
    let accept = [(SEC_WEBSOCKET_ACCEPT, accepted.accept.to_vec())];
    (StatusCode::SWITCHING_PROTOCOLS, headers, accept).into_response()
}

async fn echo<S: AsyncRead + AsyncWrite + Unpin>(
    mut connection: Connection<S>,
) -> Result<(), Error> {
    while let Some((message, mut writer)) = connection.receive().await? {
        let _ = writer.reply(message).await?;
    }
    Ok(())
}
