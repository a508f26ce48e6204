//! Temporary files without a name, whose disk space is freed when they are closed. Freeing
//! gigabytes takes a large part of a second, so such a file is closed on a thread that may block.

use std::fs::File;
use std::ops::Deref;

/// An open temporary file whose name was removed. Its disk space is freed when it is closed.
#[derive(Debug)]
pub(crate) struct UnnamedFile(Option<File>);

impl UnnamedFile {
    pub(crate) fn new(file: File) -> UnnamedFile {
        UnnamedFile(Some(file))
    }

    /// Closes the file on the current thread, and waits until its disk space is free.
    pub(crate) fn close(&mut self) {
        self.0 = None;
    }

    pub(crate) fn into_file(mut self) -> File {
        self.0.take().expect("only this, `close` and `drop` take it")
    }
}

impl Deref for UnnamedFile {
    type Target = File;

    fn deref(&self) -> &File {
        self.0.as_ref().expect("only `into_file`, `close` and `drop` take it")
    }
}

impl Drop for UnnamedFile {
    fn drop(&mut self) {
        let Some(file) = self.0.take() else { return };
        // A thread must not be started while a panic unwinds, because a failure to start it would
        // panic again and abort the process.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if !std::thread::panicking() => {
                drop(runtime.spawn_blocking(move || drop(file)));
            }
            _ => drop(file),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Read as _;
    use std::os::fd::{FromRawFd as _, OwnedFd};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn an_unnamed_file_is_closed_on_another_thread() {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for two descriptors.
        let status = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) };
        assert_eq!(status, 0);
        // SAFETY: both were just made and are owned by nobody else.
        let [mut read, write] = ends.map(|fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) }));
        let runtime =
            tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (goes_on, waits) = mpsc::channel::<()>();
        runtime.block_on(async {
            // The only such thread is busy: nothing is closed until it is free.
            let busy = tokio::task::spawn_blocking(move || waits.recv());
            drop(UnnamedFile::new(write));
            let is_open = |read: &mut File| read.read(&mut [0]).is_err();
            assert!(is_open(&mut read), "closed on this thread");
            goes_on.send(()).unwrap();
            busy.await.unwrap().unwrap();
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            assert!(!is_open(&mut read));
        });
    }
}
