//! One half reads, and many tasks send.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use rookery_websocket::protocol::CloseCode;
use rookery_websocket::{Config, Error, Parts};

use crate::cancellation::pair;
use crate::support::{FAST, Pace, pipe};

#[tokio::test(start_paused = true)]
async fn many_tasks_send_whole_messages_through_a_narrow_pipe() {
    const TASKS: usize = 8;
    const EACH: usize = 20;
    let (mut client, server) =
        pair(Pace { capacity: 3000, chunk: 500, stutters: true }, None).await;
    let (mut reader, sender) = server.split();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let sender = sender.clone();
            tokio::spawn(async move {
                for n in 0..EACH {
                    let text = format!("{task} {n} {}", "x".repeat(2000));
                    // Every third `send` is dropped the first time it waits, and repeated.
                    if n % 3 == 0 {
                        let hurried = sender.send(&text[..]);
                        if tokio::time::timeout(Duration::ZERO, hurried)
                            .await
                            .is_ok_and(|sent| sent.is_ok())
                        {
                            continue;
                        }
                    }
                    let _ = sender.send(&text[..]).await.unwrap();
                }
            })
        })
        .collect();
    let read = tokio::spawn(async move { reader.read().await.map(|message| message.is_none()) });
    let mut next = [0; TASKS];
    for _ in 0..TASKS * EACH {
        let message = client.read().await.unwrap().unwrap();
        let mut words = message.as_text().unwrap().split(' ');
        let task: usize = words.next().unwrap().parse().unwrap();
        let n: usize = words.next().unwrap().parse().unwrap();
        assert_eq!(n, next[task], "in the order its task sent it");
        assert_eq!(words.next().unwrap().len(), 2000);
        next[task] += 1;
    }
    for task in tasks {
        task.await.unwrap();
    }
    client.close(CloseCode::NORMAL, "").await.unwrap();
    assert!(read.await.unwrap().unwrap());
    assert!(matches!(sender.send("late").await, Err(Error::Closed)));
}

#[tokio::test(start_paused = true)]
async fn a_ping_from_one_task_while_another_reads() {
    let (mut client, server) = pair(FAST, None).await;
    let (mut reader, sender) = server.split();
    let read = tokio::spawn(async move { reader.read().await.unwrap().is_none() });
    let peer = tokio::spawn(async move { client.read().await.unwrap().is_none() });
    for _ in 0..3 {
        sender.ping().await.unwrap();
    }
    let both = tokio::join!(sender.ping(), sender.ping());
    assert!(both.0.is_ok() && both.1.is_ok());
    assert!(sender.close(CloseCode::NORMAL, "").await.unwrap().is_clean);
    assert!(read.await.unwrap() && peer.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_queued_message_is_written_by_the_waiting_reader() {
    let (mut client, server) = pair(FAST, None).await;
    let (mut reader, sender) = server.split();
    let read = tokio::spawn(async move { reader.read().await.map(|_| ()) });
    tokio::task::yield_now().await;
    let _ = sender.queue("queued").unwrap();
    let got = tokio::time::timeout(Duration::from_secs(1), client.read()).await.unwrap();
    assert_eq!(got.unwrap().unwrap().as_text(), Some("queued"));
    read.abort();
}

#[tokio::test(start_paused = true)]
async fn waiting_operations_end_with_the_reader() {
    let (_here, there) = pipe(FAST);
    let (mut reader, sender) = Parts::server(there).connection(Config::default()).split();
    let ping = tokio::spawn({
        let sender = sender.clone();
        async move { sender.ping().await }
    });
    assert!(matches!(reader.read().await, Err(Error::PongTimeout)));
    assert!(matches!(ping.await.unwrap(), Err(Error::Closed)));
    let close = sender.close(CloseCode::NORMAL, "").await.unwrap();
    assert!(!close.is_clean);
}

struct Woken;

impl Wake for Woken {
    fn wake(self: Arc<Self>) {}
}

#[tokio::test(start_paused = true)]
async fn dropped_operations_leave_no_waker_behind() {
    let (_here, there) = pipe(Pace { capacity: 10, ..FAST });
    let (_reader, sender) = Parts::server(there).connection(Config::default()).split();
    let _ = sender.send(&vec![0; 100_000][..]).await.unwrap();
    let woken = Arc::new(Woken);
    let waker = Waker::from(Arc::clone(&woken));
    let baseline = Arc::strong_count(&woken);
    {
        let mut send = pin!(sender.send("waits for room"));
        assert!(send.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(send.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(Arc::strong_count(&woken), baseline + 1, "remembered once");
    }
    assert_eq!(Arc::strong_count(&woken), baseline, "and not once it was dropped");
}
