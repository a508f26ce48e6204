//! Deadlines, cancellation and keep-alive, with a clock that the test moves.

use std::time::Duration;

use rookery_websocket::protocol::CloseCode;
use rookery_websocket::{Config, Error, KeepAlive, Parts};
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;

use crate::cancellation::pair;
use crate::support::{FAST, pipe};

#[tokio::test(start_paused = true)]
async fn a_read_that_timed_out_can_be_repeated() {
    let (mut client, mut server) = pair(FAST, None).await;
    let start = Instant::now();
    for n in 1..=3 {
        let read = server.read_timeout(Duration::from_secs(3)).await;
        assert!(matches!(read, Err(Error::TimedOut)));
        assert_eq!(start.elapsed().as_secs(), 3 * n);
    }
    let earlier = server.read_before(Instant::now() + Duration::from_secs(1)).await;
    assert!(matches!(earlier, Err(Error::TimedOut)));
    assert_eq!(start.elapsed().as_secs(), 10, "an earlier deadline than the timer's is kept");
    let _ = client.send("hello").await.unwrap();
    let read = server.read_timeout(Duration::from_secs(3)).await.unwrap().unwrap();
    assert_eq!(read.as_text(), Some("hello"));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_read_can_be_repeated() {
    let (mut client, mut server) = pair(FAST, None).await;
    let canceller = server.canceller();
    for _ in 0..3 {
        let cancel = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            canceller.cancel();
        };
        let (read, ()) = tokio::join!(server.read(), cancel);
        assert!(matches!(read, Err(Error::Cancelled)));
    }
    let _ = client.send("hello").await.unwrap();
    assert_eq!(server.read().await.unwrap().unwrap().as_text(), Some("hello"));
}

#[tokio::test(start_paused = true)]
async fn pings_keep_a_silent_connection_open() {
    let (mut client, mut server) = pair(FAST, None).await;
    let served = async {
        assert!(matches!(
            server.read_timeout(Duration::from_secs(3600)).await,
            Err(Error::TimedOut)
        ));
        server.close(CloseCode::NORMAL, "").await.unwrap();
    };
    let (read, ()) = tokio::join!(client.read(), served);
    assert_eq!(read.unwrap(), None);
    // The pings of each side every 20 s for an hour, the pongs of the other side, and the close
    // frame.
    let controls = client.statistics().controls_received;
    assert!((358..=361).contains(&controls), "{controls}");
    assert!(server.statistics().round_trip.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_no_ping_is_given_up() {
    let (mut here, there) = pipe(FAST);
    let mut server = Parts::server(there).connection(Config::default());
    let start = Instant::now();
    assert!(matches!(server.read().await, Err(Error::PongTimeout)));
    assert_eq!(start.elapsed().as_secs(), 40);
    drop(server);
    let mut sent = Vec::new();
    here.read_to_end(&mut sent).await.unwrap();
    assert_eq!(sent[..2], [0x89, 4], "a ping of four bytes");
}

#[tokio::test(start_paused = true)]
async fn a_suspended_laptop_does_not_end_a_session_that_allows_it() {
    let keep_alive = KeepAlive::default()
        .interval(Duration::from_secs(20))
        .timeout(Duration::from_secs(15 * 60));
    let (_here, there) = pipe(FAST);
    let mut server =
        Parts::server(there).connection(Config::default().keep_alive(Some(keep_alive)));
    let start = Instant::now();
    assert!(matches!(server.read().await, Err(Error::PongTimeout)));
    assert_eq!(start.elapsed().as_secs(), 20 + 15 * 60);
}

#[tokio::test(start_paused = true)]
async fn without_deadline_and_keep_alive_no_timer_is_made() {
    let (mut here, there) = pipe(FAST);
    let mut server = Parts::server(there).connection(Config::default().keep_alive(None));
    let wait = tokio::time::timeout(Duration::from_secs(100_000), server.read());
    assert!(wait.await.is_err());
    assert!(format!("{server:?}").contains("Timer { armed: None }"), "{server:?}");
    drop(server);
    let mut sent = Vec::new();
    here.read_to_end(&mut sent).await.unwrap();
    assert!(sent.is_empty());
}
