//! The standard output and standard error of the process, for a thread that may block.

use std::io::{self, Write};

/// A standard stream of this process, which is not closed when this value is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StandardStream {
    Output,
    Error,
}

#[cfg(unix)]
impl Write for StandardStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let descriptor = match self {
            StandardStream::Output => libc::STDOUT_FILENO,
            StandardStream::Error => libc::STDERR_FILENO,
        };
        loop {
            // SAFETY: the pointer and the length are those of `bytes`. If the descriptor is closed,
            // `write` returns an error.
            let written = unsafe { libc::write(descriptor, bytes.as_ptr().cast(), bytes.len()) };
            if let Ok(written) = usize::try_from(written) {
                return Ok(written);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(error);
            }
            // The terminal or pipe may be non-blocking, because another process that shares it may
            // have made it so.
            let mut room = libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 };
            // SAFETY: `room` is one valid `pollfd`, and the number of descriptors is 1.
            unsafe { libc::poll(&raw mut room, 1, -1) };
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
