//! Temporary files without a name, whose disk space is freed when they are closed. Freeing
//! gigabytes takes a large part of a second, so such a file is closed on a thread that may block.

use std::fs::File;
use std::ops::Deref;

use rookery_exchange::FileGuard;
use rookery_system::blocking;

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

/// Closes a temporary file on a thread that may block, and then drops `guard`.
pub(crate) fn close_in_background(file: File, guard: Option<FileGuard>) {
    blocking::run_detached(move || {
        drop(file);
        drop(guard);
    });
}

impl Deref for UnnamedFile {
    type Target = File;

    fn deref(&self) -> &File {
        self.0.as_ref().expect("only `into_file`, `close` and `drop` take it")
    }
}

impl Drop for UnnamedFile {
    fn drop(&mut self) {
        if let Some(file) = self.0.take() {
            close_in_background(file, None);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Read as _;
    use std::sync::mpsc;

    use rookery_system::blocking::BlockingPool;
    use rustix::pipe::PipeFlags;

    use super::*;

    #[test]
    fn an_unnamed_file_is_closed_on_another_thread() {
        let flags = PipeFlags::NONBLOCK | PipeFlags::CLOEXEC;
        let (read, write) = rustix::pipe::pipe_with(flags).unwrap();
        let (mut read, write) = (File::from(read), File::from(write));
        let pool = BlockingPool::start("test", 1).unwrap();
        let entered = pool.enter();
        // The only thread is busy: nothing is closed until it is free.
        let (goes_on, waits) = mpsc::channel::<()>();
        blocking::run_detached(move || _ = waits.recv());
        drop(UnnamedFile::new(write));
        let is_open = |read: &mut File| read.read(&mut [0]).is_err();
        assert!(is_open(&mut read), "closed on this thread");
        let (closed, wait_until_closed) = mpsc::channel();
        blocking::run_detached(move || closed.send(()).unwrap());
        goes_on.send(()).unwrap();
        wait_until_closed.recv().unwrap();
        assert!(!is_open(&mut read));
        drop(entered);
        pool.join();
    }
}
