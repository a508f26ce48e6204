//! Forwards the output of workers. Each line that a worker writes to stdout or stderr is written to
//! the same stream of this process, after a prefix with the worker's number and process id.
//!
//! A worker never blocks on its output, even if nothing reads the output of this process. Lines
//! that do not fit in this process's buffer are then dropped and counted.

use rookery_server::output::{LineStyle, LineWriter, OutputLines};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use super::HeldOutput;

/// The number of bytes that are read from a worker at once.
const READ_BYTES: usize = 64 << 10;

/// Forwards what a worker writes to stdout or stderr. Returns when the worker and its child
/// processes have closed the stream.
pub(crate) async fn pass_on(
    to: LineWriter,
    mut pipe: pipe::Receiver,
    style: LineStyle,
    mut kept: HeldOutput,
) {
    let mut lines = OutputLines::new(style);
    let mut read = Vec::with_capacity(READ_BYTES);
    loop {
        read.clear();
        let n = tokio::select! {
            // A read error is treated as the end of the stream, because reading again would not
            // help.
            n = pipe.read_buf(&mut read) => n.unwrap_or(0),
            () = kept.over() => {
                to.write(&kept.release());
                continue;
            }
        };
        let whole = if n == 0 {
            let rest = lines.end();
            [kept.take(b"", rest), kept.ended().await].concat()
        } else {
            let whole = lines.take(&read);
            kept.take(&read, whole)
        };
        if !whole.is_empty() {
            to.write(&whole);
        }
        if n == 0 {
            return;
        }
    }
}
