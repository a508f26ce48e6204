//! Measures what connections, compressors and handshakes allocate and keep.
#![cfg(not(miri))] // Miri's allocator is not the system's

#[path = "it/support.rs"]
#[allow(dead_code)]
mod support;

use std::task::{Context, Waker};

use rookery_test_support::allocator::{CountingAllocator, thread};
use rookery_websocket::protocol::deflate::{DeflateConfig, Deflater, Fin, Inflater, Takeover};
use rookery_websocket::protocol::handshake::{ClientRequest, ServerConfig};
use rookery_websocket::protocol::{Extensions, Role};
use rookery_websocket::{Config, Connection, Parts};
use support::{End, Pace, pipe};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Returns how often `operation` allocates, and the bytes that stay allocated.
fn allocated<T>(operation: impl FnOnce() -> T) -> (u64, isize, T) {
    let (count, live) = (thread::allocations(), thread::live_bytes());
    let value = operation();
    (thread::allocations() - count, thread::live_bytes() - live, value)
}

const SMALL: Pace = Pace { capacity: 2048, chunk: usize::MAX, stutters: false };

fn config() -> Config {
    Config::default().keep_alive(None)
}

/// Sends a message of 1,000 bytes there and back. After that both sides wait for the next.
async fn echo(client: &mut Connection<End>, server: &mut Connection<End>) {
    let _ = client.send(&[7; 1000]).await.unwrap();
    let (message, mut writer) = server.receive().await.unwrap().unwrap();
    let _ = writer.reply(message).await.unwrap();
    assert_eq!(client.read().await.unwrap().unwrap().len(), 1000);
    for connection in [client, server] {
        let read = std::pin::pin!(connection.read());
        assert!(read.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
}

#[tokio::test(flavor = "current_thread")]
async fn an_idle_connection_that_has_echoed_holds_no_buffer() {
    const CONNECTIONS: usize = 100;
    let pair = || {
        let (here, there) = pipe(SMALL);
        (Parts::client(here).connection(config()), Parts::server(there).connection(config()))
    };
    // The buffers that the thread lends.
    let (mut client, mut server) = pair();
    echo(&mut client, &mut server).await;
    let mut pairs: Vec<_> = (0..CONNECTIONS).map(|_| pair()).collect();
    let before = thread::live_bytes();
    for (client, server) in &mut pairs {
        echo(client, server).await;
    }
    let kept = thread::live_bytes() - before;
    // The thread may have one more buffer to lend than before.
    assert!(kept < 8 << 10, "{kept} bytes are kept for {CONNECTIONS} idle pairs");
}

#[test]
fn splitting_allocates_twice_and_a_canceller_once() {
    let (here, there) = pipe(SMALL);
    let mut client = Parts::client(here).connection(config());
    assert_eq!(allocated(|| client.canceller()).0, 1);
    assert_eq!(allocated(|| client.canceller()).0, 0, "the same one");
    let server = Parts::server(there).connection(config());
    assert_eq!(allocated(|| server.split()).0, 2);
}

#[test]
fn a_handshake_is_answered_without_an_allocation_but_the_subprotocols() {
    let request = ClientRequest::new("host", "/", [1; 16]).unwrap();
    let request = request.subprotocol("chat").unwrap().deflate(DeflateConfig::default());
    let mut head = Vec::new();
    request.write(&mut head);
    let server = ServerConfig::default().deflate(DeflateConfig::default());
    let (count, _, accepted) = allocated(|| server.answer_head(&head).unwrap());
    assert_eq!((count, accepted.subprotocol), (0, None));
    let server = server.subprotocol("chat");
    let (count, _, accepted) = allocated(|| server.answer_head(&head).unwrap());
    assert_eq!((count, accepted.subprotocol.as_deref()), (1, Some("chat")));
}

#[test]
fn a_list_of_extensions_is_read_without_an_allocation() {
    let line = b"permessage-deflate; client_max_window_bits=\"1\\5\"; x, other; y=z";
    let (count, _, read) = allocated(|| {
        Extensions::parse(line).map(|extension| extension.unwrap().params().count()).sum::<usize>()
    });
    assert_eq!((count, read), (0, 3));
}

/// Measures the memory that the server charges for a connection.
#[test]
fn a_compressor_takes_371_kib_and_an_inflater_less_than_48() {
    for takeover in [Takeover::None, Takeover::Kept] {
        let config = DeflateConfig::default().takeover(takeover);
        let agreed = config.choose(b"permessage-deflate").unwrap();
        let mut deflater = Deflater::new(&agreed, Role::Server, &config).unwrap();
        let mut compressed = Vec::with_capacity(4096);
        let (_, deflates, ()) =
            allocated(|| deflater.push(b"hello hello", Fin::More, &mut compressed));
        assert!((360 << 10..380 << 10).contains(&deflates), "{deflates}, {takeover:?}");
        let mut inflater = Inflater::new(takeover);
        let mut plain = Vec::with_capacity(4096);
        let (_, inflates, pushed) = allocated(|| inflater.push(&compressed, &mut plain, 1000));
        pushed.unwrap();
        assert!((32 << 10..48 << 10).contains(&inflates), "{inflates}, {takeover:?}");
    }
}

#[test]
fn compressing_and_inflating_at_steady_state_allocate_nothing() {
    for takeover in [Takeover::None, Takeover::Kept] {
        let config = DeflateConfig::default().takeover(takeover);
        let agreed = config.choose(b"permessage-deflate").unwrap();
        let mut deflater = Deflater::new(&agreed, Role::Server, &config).unwrap();
        let mut inflater = Inflater::new(takeover);
        let text = "some text that is said over and over, ".repeat(100);
        let (mut compressed, mut plain) = (Vec::new(), Vec::new());
        let mut message = || {
            compressed.clear();
            plain.clear();
            deflater.push(text.as_bytes(), Fin::Last, &mut compressed);
            inflater.push(&compressed, &mut plain, 1 << 20).unwrap();
            inflater.finish(&mut plain, 1 << 20).unwrap();
            assert_eq!(plain, text.as_bytes());
        };
        message();
        let (count, ..) = allocated(|| (0..100).for_each(|_| message()));
        assert_eq!(count, 0, "{takeover:?}");
    }
}

/// Without context takeover, connections share the states of their thread.
#[test]
fn without_takeover_an_idle_connection_holds_no_compressor() {
    let config = DeflateConfig::default();
    let agreed = config.choose(b"permessage-deflate").unwrap();
    let compress = || {
        let mut deflater = Deflater::new(&agreed, Role::Server, &config).unwrap();
        deflater.push(&[b'x'; 1000], Fin::Last, &mut Vec::new());
        deflater
    };
    let _warm = compress();
    let (_, kept, deflaters) = allocated(|| {
        let mut deflaters = Vec::new();
        deflaters.extend((0..100).map(|_| compress()));
        deflaters
    });
    assert!(kept < 100 << 10, "{kept} bytes for {}", deflaters.len());
}
