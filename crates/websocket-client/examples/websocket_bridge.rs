//! Forwards WebSockets from plaintext HTTP/1.1 to a server over TLS, with HTTP/1.1 or within HTTP/2
//! (RFC 8441). Autobahn's test client supports only plaintext HTTP/1.1; through this bridge its
//! test cases reach the other two transports.
//!
//! ```sh
//! cargo run --release -p rookery-websocket-client --example websocket_bridge -- \
//!     h2 127.0.0.1:8443 /tmp/certificate/localhost.pem
//! ```
//!
//! Bytes are forwarded unchanged, including those that violate the protocol. The end of one side is
//! forwarded to the other: a FIN becomes a `close_notify` or `END_STREAM`.

use std::error::Error;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use rookery_websocket::protocol::accept_key;
use rookery_websocket_client::{Roots, tls_config};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

type Failure = Box<dyn Error + Send + Sync>;

/// The maximum length in bytes of a request's head. That of Autobahn's test client has 300.
const HEAD: usize = 16 << 10;

/// The size in bytes of the buffer for forwarded data.
const PIECE: usize = 64 << 10;

/// The flow-control window of a stream and of its connection, large enough for a message of 16 MiB.
const WINDOW: u32 = 32 << 20;

/// The time within which a server must announce support for WebSockets over HTTP/2.
const SETTINGS_TIME: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Tls,
    Http2,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, way, server, roots] = &arguments[..] else {
        return Err("`tls` or `h2`, an address and a file with the certificate are needed".into());
    };
    let way = match way.as_str() {
        "tls" => Way::Tls,
        "h2" => Way::Http2,
        other => return Err(format!("{other} is neither `tls` nor `h2`").into()),
    };
    let config =
        tls_config(&Roots::Custom(roots.clone())).map_err(|_| "no certificate to trust")?;
    let mut config = ClientConfig::clone(&config);
    if way == Way::Http2 {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    let (config, server): (_, &'static str) = (Arc::new(config), server.clone().leak());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on ws://{}", listener.local_addr()?);
    loop {
        let (client, _) = listener.accept().await?;
        let connector = TlsConnector::from(Arc::clone(&config));
        tokio::spawn(async move {
            if let Err(error) = carry(client, way, server, connector).await {
                eprintln!("{error}");
            }
        });
    }
}

async fn carry(
    mut client: TcpStream,
    way: Way,
    server: &'static str,
    connector: TlsConnector,
) -> Result<(), Failure> {
    client.set_nodelay(true)?;
    let socket = TcpStream::connect(server).await?;
    socket.set_nodelay(true)?;
    let mut tls = connector.connect(ServerName::try_from("localhost")?, socket).await?;
    match way {
        Way::Tls => copy_bidirectional(&mut client, &mut tls).await.map(drop)?,
        Way::Http2 => carry_stream(client, tls).await?,
    }
    Ok(())
}

/// Opens a WebSocket within an HTTP/2 connection of its own, and forwards its bytes until the end.
async fn carry_stream(mut client: TcpStream, tls: TlsStream<TcpStream>) -> Result<(), Failure> {
    let (request, key) = read_head(&mut client).await?;
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
    let (mut requests, connection) = builder.handshake::<_, Bytes>(tls).await?;
    let driven = tokio::spawn(connection);
    let settings = async {
        while !requests.is_extended_connect_protocol_enabled() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(SETTINGS_TIME, settings)
        .await
        .map_err(|_| "the server takes no WebSockets within HTTP/2")?;
    let (response, to_server) = requests.send_request(request, false)?;
    let (head, from_server) = response.await?.into_parts();
    if head.status != StatusCode::OK {
        return Err(format!("the server answered with {}", head.status).into());
    }
    let mut answer = String::from(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
    );
    for (name, value) in &head.headers {
        write!(answer, "{name}: {}\r\n", value.to_str()?)?;
    }
    write!(answer, "sec-websocket-accept: {}\r\n\r\n", std::str::from_utf8(&accept_key(&key))?)?;
    client.write_all(answer.as_bytes()).await?;
    let (read, write) = client.into_split();
    let up = tokio::spawn(send(read, to_server));
    let received = receive(from_server, write).await;
    // A reset ends both directions of a stream. After a regular end in one direction, the other may
    // continue.
    if received.is_err() {
        up.abort();
    }
    let _ = up.await;
    drop(requests);
    driven.await??;
    received
}

/// Converts the client's opening handshake to an HTTP/2 request, and returns it with the key.
async fn read_head(client: &mut TcpStream) -> Result<(Request<()>, Vec<u8>), Failure> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= HEAD {
            return Err("a head that does not end".into());
        }
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let mut lines = head.trim_end().split("\r\n");
    let target = lines.next().and_then(|line| line.split(' ').nth(1)).ok_or("no request line")?;
    let mut request = Request::builder()
        .method(Method::CONNECT)
        .uri(format!("https://localhost{target}"))
        .body(())?;
    request.extensions_mut().insert(Protocol::from_static("websocket"));
    let mut key = Vec::new();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let (name, value) = (name.to_ascii_lowercase(), value.trim());
        match name.as_str() {
            "sec-websocket-key" => key = value.as_bytes().to_vec(),
            "host" | "connection" | "upgrade" => {}
            _ => {
                let value = HeaderValue::from_str(value)?;
                request.headers_mut().append(HeaderName::from_bytes(name.as_bytes())?, value);
            }
        }
    }
    Ok((request, key))
}

async fn send(mut client: OwnedReadHalf, mut server: SendStream<Bytes>) -> Result<(), Failure> {
    let mut piece = vec![0; PIECE];
    loop {
        let n = client.read(&mut piece).await?;
        if n == 0 {
            return Ok(server.send_data(Bytes::new(), true)?);
        }
        let mut rest = Bytes::copy_from_slice(&piece[..n]);
        while !rest.is_empty() {
            server.reserve_capacity(rest.len());
            let room =
                poll_fn(|cx| server.poll_capacity(cx)).await.ok_or("the stream has ended")??;
            server.send_data(rest.split_to(room.min(rest.len())), false)?;
        }
    }
}

async fn receive(mut server: RecvStream, mut client: OwnedWriteHalf) -> Result<(), Failure> {
    while let Some(data) = server.data().await {
        let data = data?;
        client.write_all(&data).await?;
        server.flow_control().release_capacity(data.len())?;
    }
    Ok(client.shutdown().await?)
}
