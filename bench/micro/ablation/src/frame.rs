//! Reading a masked 64-byte message, and writing its echo, over a transport in memory.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use rookery_websocket::protocol::{MaskKey, OpCode, encode_frame};
use rookery_websocket::{Config, Parts};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use rookery_bench_meter::{Figures, repeat};

/// A transport that returns one frame for each read, and accepts all writes.
struct Replay {
    frame: Vec<u8>,
}

impl AsyncRead for Replay {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        target.put_slice(&self.frame);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Replay {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Reads a masked message of 64 bytes and echoes it.
pub fn run(n: u64) -> Figures {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _entered = runtime.enter();
    let mut frame = Vec::new();
    encode_frame(&mut frame, OpCode::Text, true, Some(MaskKey([1, 2, 3, 4])), &[b'x'; 64]);
    let mut connection = Parts::server(Replay { frame }).connection(Config::default());
    let mut cx = Context::from_waker(Waker::noop());
    repeat(n, || {
        let mut echo = pin!(async {
            let (message, mut writer) = connection.receive().await?.expect("a message");
            writer.reply(message).await
        });
        match echo.as_mut().poll(&mut cx) {
            Poll::Ready(Ok(sent)) => sent,
            Poll::Ready(Err(error)) => panic!("{error}"),
            Poll::Pending => panic!("the transport never has to wait"),
        }
    })
}
