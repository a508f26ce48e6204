//! Checks that a forked child draws masking keys of its own. This is the only test in its process,
//! because a fork copies the locks of all threads.
#![cfg(all(unix, not(miri)))]

#[path = "it/support.rs"]
#[allow(dead_code)]
mod support;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::task::{Context, Poll, Waker};

use rookery_websocket::{Config, Connection, Parts, SendStatus};
use support::{End, FAST, pipe};
use tokio::io::{AsyncRead as _, ReadBuf};

/// The number of frames whose keys are compared, which is less than one batch of random bytes.
const FRAMES: usize = 50;

/// Sends empty messages and returns their masking keys.
fn keys(client: &mut Connection<End>, peer: &mut End) -> Vec<[u8; 4]> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut frames = vec![0; FRAMES * 6];
    let mut read = ReadBuf::new(&mut frames);
    for _ in 0..FRAMES {
        let sent = std::pin::pin!(client.send(&[])).as_mut().poll(&mut cx);
        assert!(matches!(sent, Poll::Ready(Ok(SendStatus::Sent))));
    }
    assert!(std::pin::Pin::new(peer).poll_read(&mut cx, &mut read).is_ready());
    assert_eq!(read.filled().len(), FRAMES * 6);
    read.filled().chunks_exact(6).map(|frame| frame[2..].try_into().unwrap()).collect()
}

#[test]
fn a_forked_child_repeats_no_masking_key() {
    let (here, mut there) = pipe(FAST);
    let mut client = Parts::client(here).connection(Config::default().keep_alive(None));
    // The thread has keys in reserve now.
    keys(&mut client, &mut there);
    let (mut from_child, mut to_parent) = UnixStream::pair().unwrap();
    // SAFETY: no other thread of this process holds a lock that the child takes, because the test
    // harness only waits for this test. The child ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let drawn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let bytes = keys(&mut client, &mut there).concat();
            to_parent.write_all(&bytes).unwrap();
        }));
        // SAFETY: `_exit` ends the process at once and runs no code of the parent.
        unsafe { libc::_exit(i32::from(drawn.is_err())) };
    }
    assert!(child > 0, "{}", std::io::Error::last_os_error());
    // The child owns the other end now.
    drop(to_parent);
    let mut status = 0;
    // SAFETY: `status` has space for a number, and `child` is a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child has drawn its keys");
    let mut bytes = Vec::new();
    from_child.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    from_child.read_to_end(&mut bytes).unwrap();
    let theirs: Vec<&[u8]> = bytes.chunks_exact(4).collect();
    assert_eq!(theirs.len(), FRAMES);
    let ours = keys(&mut client, &mut there);
    let repeated = ours.iter().filter(|key| theirs.contains(&&key[..])).count();
    // Two random keys are equal with a probability of one in 4 billion.
    assert!(repeated <= 1, "{repeated} of {FRAMES} keys are the same in parent and child");
}
