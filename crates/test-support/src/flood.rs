//! Clients that keep a server busy while a test looks at what other clients get.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crate::wait_until;

/// The number of rounds of all clients after which the server counts as busy.
const FIRST_ROUNDS: usize = 20;

/// Clients that send without pause, each on a thread of its own, until this value is dropped.
#[derive(Debug)]
pub struct Flood {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    /// Calls each function in `clients` again and again. A function sends something, and returns
    /// even if the server is busy. Returns once the server is busy.
    pub fn start<F: FnMut() + Send + 'static>(clients: impl IntoIterator<Item = F>) -> Flood {
        let (is_over, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let start = |mut client: F| {
            let (is_over, rounds) = (Arc::clone(&is_over), Arc::clone(&rounds));
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    client();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let threads = clients.into_iter().map(start).collect();
        let flood = Flood { is_over, threads };
        wait_until("the clients send", || rounds.load(Ordering::Relaxed) >= FIRST_ROUNDS);
        flood
    }

    /// Returns true if all clients still send.
    pub fn goes_on(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "a client has failed");
        }
    }
}
