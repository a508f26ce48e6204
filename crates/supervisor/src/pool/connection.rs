//! Connections to a worker.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Builder, SendRequest};
use rookery_server::UnixStream;

use super::io::Io;
use super::request_body::RequestBody;
use super::worker::Worker;

/// How long connecting may take. A worker that lives accepts at once; one that is stopped has a queue of 4,096.
const CONNECT_TIME: Duration = Duration::from_secs(1);

/// Bytes of a reply's head, and lines. Both ends are ours; the limit is for an app that sets a header without end.
const HEAD_BYTES: usize = 256 << 10;
const HEAD_LINES: usize = 1000;

/// A connection, as whoever sends requests over it has it.
pub(super) type Connection = SendRequest<RequestBody>;

/// Why there is no response.
#[derive(Debug)]
pub(super) enum Failure {
    /// The worker has not seen the request.
    Unsent,
    /// It has seen it, or may have.
    Lost,
    /// What it answered is no response.
    Unreadable,
    /// The worker is not waited for any longer.
    TookTooLong,
}

/// A connection that is ready for a request, an old one or a new.
pub(super) async fn connection(worker: &Worker) -> Result<Connection, Failure> {
    while let Some(mut kept) = worker.connection() {
        // Its last response may not have been read to the very end yet.
        if kept.ready().await.is_ok() {
            return Ok(kept);
        }
    }
    let (sender, connection) = open(worker).await?;
    tokio::task::spawn_local(async move {
        // How it ends its request is told.
        let _ = connection.await;
    });
    Ok(sender)
}

async fn open(worker: &Worker) -> Result<(Connection, http1::Connection<Io, RequestBody>), Failure> {
    let connecting = tokio::net::UnixStream::connect(&worker.member.socket);
    let connected = tokio::time::timeout(CONNECT_TIME, connecting).await.map_err(|_| Failure::Unsent)?;
    let socket = connected.and_then(tokio::net::UnixStream::into_std).and_then(UnixStream::new);
    let socket = socket.map_err(|_| Failure::Unsent)?;
    let mut builder = Builder::new();
    builder.max_headers(HEAD_LINES).max_buf_size(HEAD_BYTES);
    builder.handshake(Io(socket)).await.map_err(|_| Failure::Unsent)
}

/// Sends a request and waits for the head of its response.
pub(super) async fn send(
    connection: &mut Connection,
    request: Request<RequestBody>,
) -> Result<Response<Incoming>, Failure> {
    connection.try_send_request(request).await.map_err(|mut error| match error.take_message() {
        Some(_) => Failure::Unsent,
        None if error.error().is_parse() => Failure::Unreadable,
        None => Failure::Lost,
    })
}

/// What came of an opening handshake.
pub(super) enum Opened {
    /// A WebSocket, with what was read behind the head.
    WebSocket(Response<Incoming>, UnixStream, Bytes),
    /// Another answer, on a connection that may be used again.
    Refused(Response<Incoming>, Connection),
}

/// Sends an opening handshake over a connection of its own.
pub(super) async fn open_websocket(
    worker: &Worker,
    request: Request<RequestBody>,
) -> Result<Opened, Failure> {
    let (mut sender, mut connection) = open(worker).await?;
    let mut sending = Box::pin(async move {
        let response = send(&mut sender, request).await;
        response.map(|response| (response, sender))
    });
    let (response, sender) = poll_fn(|cx| {
        // Driven here, so that it is here when the worker has accepted.
        let driven = connection.poll_without_shutdown(cx);
        match sending.as_mut().poll(cx) {
            Poll::Pending if driven.is_ready() => Poll::Ready(Err(Failure::Lost)),
            polled => polled,
        }
    })
    .await?;
    if response.status() == http::StatusCode::SWITCHING_PROTOCOLS {
        drop(sender);
        let parts = connection.into_parts();
        return Ok(Opened::WebSocket(response, parts.io.0, parts.read_buf));
    }
    tokio::task::spawn_local(async move {
        // As above.
        let _ = connection.await;
    });
    Ok(Opened::Refused(response, sender))
}
