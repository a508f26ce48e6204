//! Responses to a batch of messages.

use rookery_websocket::protocol::{MaskKey, OpCode, encode_frame};
use rookery_websocket::{Config, Parts, SendStatus};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{FAST, pipe};

/// While more messages were buffered, a response was once queued as by `queue`, which drops what
/// exceeds the limit.
#[tokio::test(start_paused = true)]
async fn a_reply_to_one_of_a_batch_is_never_dropped() {
    let (mut here, there) = pipe(FAST);
    let mut server = Parts::server(there).connection(Config::default().queue_max(100));
    let mut batch = Vec::new();
    for text in ["first", "second", "third"] {
        encode_frame(&mut batch, OpCode::Text, true, Some(MaskKey([1, 2, 3, 4])), text.as_bytes());
    }
    here.write_all(&batch).await.unwrap();
    for len in [50, 90, 10] {
        let (_, mut writer) = server.receive().await.unwrap().unwrap();
        assert_ne!(writer.reply(&[7; 90][..len]).await.unwrap(), SendStatus::Dropped);
    }
    let mut answers = vec![0; 50 + 90 + 10 + 3 * 2];
    here.read_exact(&mut answers).await.unwrap();
    assert_eq!((answers[1], answers[52 + 1], answers[52 + 92 + 1]), (50, 90, 10));
    assert_eq!(server.statistics().dropped, 0);
}

#[tokio::test(start_paused = true)]
async fn replies_to_a_batch_leave_together() {
    let (mut here, there) = pipe(FAST);
    let mut server = Parts::server(there).connection(Config::default());
    let mut batch = Vec::new();
    for _ in 0..3 {
        encode_frame(&mut batch, OpCode::Text, true, Some(MaskKey([1, 2, 3, 4])), b"hello");
    }
    here.write_all(&batch).await.unwrap();
    for (n, waiting) in [7, 14, 0].into_iter().enumerate() {
        let (message, mut writer) = server.receive().await.unwrap().unwrap();
        assert_eq!(writer.reply(message).await.unwrap(), SendStatus::Sent);
        assert_eq!(server.pending(), waiting, "after reply {n}");
    }
}
