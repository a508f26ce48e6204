//! Connections as streams of bytes and of messages, over TLS, with JSON, and without reading.

use std::io::ErrorKind;

use rookery_websocket::protocol::{CloseCode, Ending};
use rookery_websocket::{ByteStream, Connection, Error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::cancellation::pair;
use crate::support::{End, FAST, Pace};

const NARROW: Pace = Pace { capacity: 3000, chunk: 500, stutters: true };

async fn byte_streams(pace: Pace) -> (ByteStream<End>, ByteStream<End>) {
    let (client, server) = pair(pace, None).await;
    (client.into(), server.into())
}

/// Both directions are full at the same time, so that a lost waker would stop the test.
#[tokio::test(start_paused = true)]
async fn bytes_pass_in_both_directions_whatever_the_size_of_reads_and_writes() {
    let (client, server) = byte_streams(NARROW).await;
    let sent: Vec<u8> = (0..200_000_u64).map(|n| ((n * n) >> 7) as u8).collect();
    let run = |stream: ByteStream<End>, size: usize| {
        let sent = sent.clone();
        async move {
            let (mut reader, mut writer) = tokio::io::split(stream);
            let write = tokio::spawn(async move {
                for chunk in sent.chunks(size) {
                    writer.write_all(chunk).await.unwrap();
                }
                writer.shutdown().await.unwrap();
            });
            let mut read = Vec::new();
            let mut buffer = vec![0; size / 3];
            loop {
                match reader.read(&mut buffer).await.unwrap() {
                    0 => break,
                    n => read.extend_from_slice(&buffer[..n]),
                }
            }
            write.await.unwrap();
            read
        }
    };
    let (left, right) = tokio::join!(run(client, 7000), run(server, 100_000));
    assert!(left == sent && right == sent);
}

#[tokio::test]
async fn a_message_of_a_byte_stream_has_at_most_64_kib_and_none_is_empty() {
    let (client, mut server) = pair(FAST, None).await;
    let mut client = ByteStream::from(client);
    assert_eq!(client.write(&[]).await.unwrap(), 0);
    client.write_all(&vec![1; 100_000]).await.unwrap();
    client.shutdown().await.unwrap();
    let mut lengths = Vec::new();
    while let Some(message) = server.read().await.unwrap() {
        lengths.push(message.len());
    }
    assert_eq!(lengths, [65_536, 34_464]);
    assert_eq!(client.write(b"late").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(client.read(&mut [0; 9]).await.unwrap(), 0, "the handshake is complete");
}

#[tokio::test]
async fn a_byte_stream_that_breaks_is_an_error_and_no_end() {
    let (client, server) = byte_streams(FAST).await;
    let mut client = client;
    drop(server);
    let error = client.read(&mut [0; 9]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn the_transports_own_error_passes_through() {
    let own = std::io::Error::from(ErrorKind::HostUnreachable);
    let through = std::io::Error::from(Error::from(own));
    assert_eq!(through.kind(), ErrorKind::HostUnreachable);
    assert!(through.get_ref().is_none());
    let wrapped = std::io::Error::from(Error::Eof);
    assert!(matches!(wrapped.get_ref(), Some(inner) if inner.is::<Error>()));
}

async fn close_read(server: Connection<End>) -> Result<Ending, Error> {
    let (reader, sender) = server.split();
    let closing = tokio::spawn(reader.close_read());
    let _ = sender.send("news").await?;
    closing.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_only_sends_answers_pings_and_ends_with_its_peer() {
    let (mut client, server) = pair(FAST, None).await;
    let server = tokio::spawn(close_read(server));
    assert_eq!(client.read().await.unwrap().unwrap().as_text(), Some("news"));
    client.ping().await.unwrap();
    client.close(CloseCode::GOING_AWAY, "").await.unwrap();
    let ending = server.await.unwrap().unwrap();
    assert_eq!(ending.code, Some(CloseCode::GOING_AWAY));
}

#[tokio::test(start_paused = true)]
async fn a_message_on_a_connection_that_only_sends_closes_it() {
    let (mut client, server) = pair(NARROW, None).await;
    let server = tokio::spawn(close_read(server));
    // More than fits into the pipe: the rest of the message is discarded.
    let mut sent = client.write(rookery_websocket::Kind::Binary).unwrap();
    sent.write(&[1; 2000]).await.unwrap();
    sent.write(&[2; 2000]).await.unwrap();
    sent.finish().await.unwrap();
    while client.read().await.unwrap().is_some() {}
    assert_eq!(client.ending().code, Some(CloseCode::POLICY));
    assert!(server.await.unwrap().unwrap().is_clean);
}

#[cfg(feature = "stream")]
mod stream {
    use std::time::Duration;

    use futures_util::{SinkExt, StreamExt};
    use rookery_websocket::{Config, MessageStream, OwnedMessage, Parts};

    use super::*;

    fn message(n: usize) -> OwnedMessage {
        match n % 2 {
            0 => "x".repeat(n * 7).into(),
            _ => vec![n as u8; n * 11].into(),
        }
    }

    /// Both directions are full at the same time, and one side echoes by `forward`.
    #[tokio::test(start_paused = true)]
    async fn messages_pass_in_both_directions_between_two_tasks() {
        const COUNT: usize = 200;
        let (client, server) = pair(NARROW, None).await;
        let (sink, stream) = MessageStream::from(server).split();
        let echo = tokio::spawn(stream.forward(sink));
        let (mut sink, mut stream) = MessageStream::from(client).split();
        let send = tokio::spawn(async move {
            for n in 0..COUNT {
                sink.feed(message(n)).await.unwrap();
            }
            sink.flush().await.unwrap();
            sink
        });
        for n in 0..COUNT {
            assert_eq!(stream.next().await.unwrap().unwrap(), message(n));
        }
        let mut sink = send.await.unwrap();
        sink.close().await.unwrap();
        assert!(stream.next().await.is_none());
        echo.await.unwrap().unwrap();
        assert!(matches!(sink.send(message(1)).await, Err(Error::Closed)));
    }

    #[tokio::test]
    async fn a_stream_ends_after_its_error() {
        let (client, server) = pair(FAST, None).await;
        drop(server);
        let (mut reader, _sender) = client.split();
        assert!(matches!(reader.next().await, Some(Err(Error::Eof))));
        assert!(reader.next().await.is_none() && reader.next().await.is_none());
    }

    /// A sink accepts a message only below the high-water mark, and never drops one.
    #[tokio::test(start_paused = true)]
    async fn a_full_sink_waits_and_drops_nothing() {
        // A pipe that stutters would wake the sink again and again, and time would stand still.
        let (here, there) = crate::support::pipe(Pace { stutters: false, ..NARROW });
        let config = Config::default().high_water(1000).queue_max(1000);
        let mut sink = MessageStream::from(Parts::server(here).connection(config));
        let mut count = 0;
        let mut feed = async || {
            while tokio::time::timeout(Duration::from_secs(1), sink.feed(vec![7; 900].into()))
                .await
                .is_ok()
            {
                count += 1;
            }
        };
        feed().await;
        assert!(count >= 2);
        let mut peer = Parts::client(there).connection(Config::default());
        let read = tokio::spawn(async move {
            for _ in 0..count {
                assert_eq!(peer.read().await.unwrap().unwrap().len(), 900);
            }
        });
        sink.flush().await.unwrap();
        read.await.unwrap();
    }
}

#[cfg(feature = "json")]
#[tokio::test]
async fn json_that_does_not_fit_is_an_error() {
    use rookery_websocket::OwnedMessage;
    let (mut client, mut server) = pair(FAST, None).await;
    let _ = client.send(&OwnedMessage::from_json(&["a", "b"]).unwrap()).await.unwrap();
    let _ = client.send(b"[1, 2]").await.unwrap();
    let _ = client.send("[1, 2").await.unwrap();
    let message = server.read().await.unwrap().unwrap();
    assert_eq!(message.as_text(), Some(r#"["a","b"]"#));
    assert!(message.parse_json::<[u8; 2]>().is_err());
    assert_eq!(server.read().await.unwrap().unwrap().parse_json::<[u8; 2]>().unwrap(), [1, 2]);
    assert!(server.read().await.unwrap().unwrap().parse_json::<[u8; 2]>().unwrap_err().is_eof());
    assert!(OwnedMessage::from_json(&[((), 1)].into_iter().collect::<Map>()).is_err());
}

#[cfg(feature = "json")]
type Map = std::collections::HashMap<(), u8>;

#[cfg(feature = "tls")]
mod tls {
    use std::sync::Arc;
    use std::time::Duration;

    use rookery_test_support::tls::client_config;
    use rookery_test_support::tls_file;
    use rookery_websocket::protocol::handshake::{OriginPolicy, ServerConfig};
    use rookery_websocket::rustls::pki_types::pem::PemObject as _;
    use rookery_websocket::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rookery_websocket::rustls::{self, crypto::ring::default_provider};
    use rookery_websocket::{ClientConfig, Config, accept, connect_tls};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// Echoes the messages of one connection over TLS. Returns the port.
    async fn echo_once() -> u16 {
        let certificate = CertificateDer::from_pem_file(tls_file("localhost.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(tls_file("localhost.key")).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (tcp, _) = listener.accept().await.unwrap();
            let Ok(io) = TlsAcceptor::from(Arc::new(config)).accept(tcp).await else { return };
            let server = ServerConfig::default().origin(OriginPolicy::Any);
            let (mut connection, _) = accept(io, &server, Config::default()).await.unwrap();
            while let Some((message, mut writer)) = connection.receive().await.unwrap() {
                let _ = writer.reply(message).await.unwrap();
            }
        });
        port
    }

    #[tokio::test]
    async fn a_client_speaks_over_tls_to_a_server_that_it_trusts() {
        let tls = Arc::new(client_config(None));
        let url = format!("wss://localhost:{}/", echo_once().await);
        let (mut connection, _) = connect_tls(&url, &ClientConfig::default(), tls).await.unwrap();
        let long = "a secret ".repeat(10_000);
        let _ = connection.send(&*long).await.unwrap();
        assert_eq!(connection.read().await.unwrap().unwrap().as_text(), Some(&*long));
        let ending = connection.close(CloseCode::NORMAL, "").await.unwrap();
        assert!(ending.is_clean);
    }

    #[tokio::test]
    async fn an_untrusted_server_a_silent_one_and_other_schemes_are_errors() {
        let config = ClientConfig::default();
        let store = rustls::RootCertStore::empty();
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(store)
            .with_no_client_auth();
        let tls = Arc::new(tls);
        let url = format!("wss://localhost:{}/", echo_once().await);
        let error = connect_tls(&url, &config, Arc::clone(&tls)).await.unwrap_err();
        let Error::Io(error) = error else { panic!("{error}") };
        assert!(matches!(error.get_ref(), Some(inner) if inner.is::<rustls::Error>()), "{error}");

        // Accepts and says nothing. The TLS handshake counts towards the handshake timeout.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("wss://{}/", silent.local_addr().unwrap());
        let short = Config::default().handshake_timeout(Duration::from_millis(50));
        let short = config.clone().connection(short);
        let error = connect_tls(&url, &short, Arc::clone(&tls)).await.unwrap_err();
        assert!(matches!(error, Error::HandshakeTimeout), "{error}");

        for address in ["ws://localhost/", "wss://", "wss://a b/"] {
            let error = connect_tls(address, &config, Arc::clone(&tls)).await.unwrap_err();
            assert!(matches!(error, Error::Address), "{address}: {error}");
        }
    }
}
