//! Temporary files without a name, which are closed on another thread. The last close of such a
//! file frees its blocks, which takes a good part of a second for gigabytes.

use std::fs::File;
use std::ops::Deref;

/// A file that has no name any more. Dropping the value closes the file on another thread.
#[derive(Debug)]
pub(crate) struct UnnamedFile(Option<File>);

impl UnnamedFile {
    pub(crate) fn new(file: File) -> UnnamedFile {
        UnnamedFile(Some(file))
    }

    /// Closes the file on the current thread.
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
        // During the unwinding of a panic, the file is closed here. If no thread could be started,
        // `spawn_blocking` would panic, and a second panic would abort the process.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if !std::thread::panicking() => {
                drop(runtime.spawn_blocking(move || drop(file)))
            }
            _ => drop(file),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::{FromRawFd as _, OwnedFd};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn an_unnamed_file_is_closed_on_another_thread() {
        let mut ends = [0; 2];
        // SAFETY: `ends` has space for two descriptors.
        assert_eq!(
            unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) },
            0
        );
        // SAFETY: both descriptors were just created, and nothing else owns them.
        let [mut read, write] = ends.map(|fd| File::from(unsafe { OwnedFd::from_raw_fd(fd) }));
        let runtime =
            tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (goes_on, waits) = mpsc::channel::<()>();
        runtime.block_on(async {
            // The only thread for blocking tasks is busy, so that the file stays open until the
            // thread is free.
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
