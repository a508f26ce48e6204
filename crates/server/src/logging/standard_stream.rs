//! The standard output and standard error of the process, for a thread that may block.

use std::io::{self, Write};

#[cfg(unix)]
use {
    rustix::event::{PollFd, PollFlags, poll},
    rustix::io::Errno,
    rustix::stdio::{dup2_stderr, dup2_stdout, stderr, stdout},
    std::os::fd::{BorrowedFd, OwnedFd},
};

/// A standard stream of this process, which is not closed when this value is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StandardStream {
    Output,
    Error,
}

#[cfg(unix)]
impl StandardStream {
    pub(super) fn name(self) -> &'static str {
        match self {
            StandardStream::Output => "stdout",
            StandardStream::Error => "stderr",
        }
    }

    pub(super) fn descriptor(self) -> BorrowedFd<'static> {
        match self {
            StandardStream::Output => stdout(),
            StandardStream::Error => stderr(),
        }
    }

    /// Makes the stream refer to the same open file as `to`. A failure changes nothing.
    pub(super) fn redirect(self, to: &OwnedFd) {
        let _ = match self {
            StandardStream::Output => dup2_stdout(to),
            StandardStream::Error => dup2_stderr(to),
        };
    }
}

#[cfg(unix)]
impl Write for StandardStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stream = self.descriptor();
        loop {
            match rustix::io::write(stream, bytes) {
                // The terminal or pipe may be non-blocking, because another process that shares it
                // may have made it so.
                Err(Errno::WOULDBLOCK) => {
                    let _ = poll(&mut [PollFd::new(&stream, PollFlags::OUT)], None);
                }
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes to the standard library's streams, which convert UTF-8 for the console of Windows.
#[cfg(not(unix))]
impl Write for StandardStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            StandardStream::Output => {
                let mut stdout = io::stdout().lock();
                let written = stdout.write(bytes)?;
                stdout.flush()?;
                Ok(written)
            }
            StandardStream::Error => io::stderr().lock().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
