//! An application in place of R. It takes the server's events and does what the test wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rookery_exchange::{AppWaker, Event, Link};
use rookery_server::Server;

/// The waker of an application that polls its queue.
pub(crate) struct NoWaker;

impl AppWaker for NoWaker {
    fn wake(&self) {}
}

/// An application on a thread of its own, which ends when this is dropped.
pub(crate) struct Application {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Application {
    /// Calls `handle` with each event of the server.
    pub(crate) fn start(
        server: &Server,
        mut handle: impl FnMut(&Link, Event) + Send + 'static,
    ) -> Application {
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (link, is_over) = (Arc::clone(server.link()), Arc::clone(&is_over));
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    link.wait(Duration::from_millis(20));
                    while let Some(event) = link.next() {
                        handle(&link, event);
                    }
                }
            }
        });
        Application { is_over, thread: Some(thread) }
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        // A failure of the test itself is more useful than that of the application's thread.
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}
