//! Temporary files without a name, whose disk space is freed when they are closed. Freeing
//! gigabytes takes a large part of a second, so such a file is closed on a thread that may block.

use std::fs::File;
use std::ops::Deref;
use std::sync::Mutex;

use rookery_exchange::Charge;
use rookery_system::blocking;

/// An open temporary file whose name was removed. Its disk space is freed when it is closed.
#[derive(Debug)]
pub(crate) struct UnnamedFile {
    file: Option<File>,
    /// The charge for the descriptor of the file, which ends when the file has been closed. Several
    /// threads may refer to the file, so the charge is in a mutex, which is never locked.
    charge: Option<Mutex<Charge>>,
}

impl UnnamedFile {
    pub(crate) fn new(file: File) -> UnnamedFile {
        UnnamedFile { file: Some(file), charge: None }
    }

    /// Keeps the charge for the descriptor of the file until the file has been closed.
    pub(crate) fn set_charge(&mut self, charge: Charge) {
        self.charge = Some(Mutex::new(charge));
    }

    /// Returns true if there is a charge for the descriptor of the file.
    pub(crate) fn is_charged(&self) -> bool {
        self.charge.is_some()
    }

    /// Closes the file on the current thread, and waits until its disk space is free.
    pub(crate) fn close(&mut self) {
        self.file = None;
        self.charge = None;
    }

    /// Returns the file, and the charge for its descriptor.
    pub(crate) fn into_file(mut self) -> (File, Option<Mutex<Charge>>) {
        let file = self.file.take().expect("only this, `close` and `drop` take it");
        (file, self.charge.take())
    }
}

/// Closes a temporary file on a thread that may block, and then drops `guard`.
pub(crate) fn close_in_background(file: File, guard: impl Send + 'static) {
    blocking::run_detached(move || {
        drop(file);
        drop(guard);
    });
}

impl Deref for UnnamedFile {
    type Target = File;

    fn deref(&self) -> &File {
        self.file.as_ref().expect("only `into_file`, `close` and `drop` take it")
    }
}

impl Drop for UnnamedFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            close_in_background(file, self.charge.take());
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
