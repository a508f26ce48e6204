//! A server of hyper that answers requests, and echoes the messages of WebSockets.
//!
//! `upgrade_hyper [address]` prints the address that it listens on.

use std::convert::Infallible;

use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use rookery_websocket::protocol::handshake::{Accepted, Refusal, ServerConfig};
use rookery_websocket::{Config, Connection, Error, Parts};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9001".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on ws://{}", listener.local_addr()?);
    loop {
        let (tcp, _) = listener.accept().await?;
        tcp.set_nodelay(true)?;
        tokio::spawn(async move {
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(tcp), service_fn(respond))
                .with_upgrades();
            if let Err(error) = served.await {
                eprintln!("{error}");
            }
        });
    }
}

async fn respond(mut request: Request<Incoming>) -> Result<Response<String>, Infallible> {
    if !request.headers().contains_key(UPGRADE) {
        return Ok(Response::new("send a WebSocket handshake\n".to_owned()));
    }
    let config = ServerConfig::default();
    let accepted = match check(&config, &request) {
        Ok(accepted) => accepted,
        Err(refusal) => {
            let mut response = Response::new(format!("{refusal}\n"));
            *response.status_mut() =
                StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::BAD_REQUEST);
            return Ok(response);
        }
    };
    let response = switching_protocols(&accepted);
    // Is ready when hyper has written the response.
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(io) = upgraded.await else { return };
        let parts = Parts::server(TokioIo::new(io)).deflate(accepted.deflate.zip(config.deflate));
        if let Err(error) = echo(parts.connection(Config::default())).await {
            eprintln!("{error}");
        }
    });
    Ok(response)
}

/// Checks a handshake request that hyper has parsed.
fn check(config: &ServerConfig, request: &Request<Incoming>) -> Result<Accepted, Refusal> {
    if request.method() != Method::GET {
        return Err(Refusal::Method);
    }
    if request.version() != Version::HTTP_11 {
        return Err(Refusal::HttpVersion);
    }
    config.answer(request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
}

/// Returns the response to a handshake request.
fn switching_protocols(accepted: &Accepted) -> Response<String> {
    let mut response = Response::new(String::new());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let optional = [
        (SEC_WEBSOCKET_ACCEPT, HeaderValue::from_bytes(&accepted.accept).ok()),
        (SEC_WEBSOCKET_PROTOCOL, accepted.subprotocol.as_ref().and_then(|it| it.parse().ok())),
        (SEC_WEBSOCKET_EXTENSIONS, accepted.deflate.and_then(|it| it.to_string().parse().ok())),
    ];
    headers.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    response
}

async fn echo<S: AsyncRead + AsyncWrite + Unpin>(
    mut connection: Connection<S>,
) -> Result<(), Error> {
    while let Some((message, mut writer)) = connection.receive().await? {
        let _ = writer.reply(message).await?;
    }
    Ok(())
}
