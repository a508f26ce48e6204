//! Orders to the I/O thread, and how they reach it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use rookery_exchange::ListenerId;
use tokio::sync::Notify;

use super::public::Group;
use super::supervision::Supervision;

/// What the I/O thread is told to do.
#[derive(Debug)]
pub(super) enum Order {
    Listen {
        listener: ListenerId,
        /// The socket of a worker among them, with public listeners beside it.
        inherited: Option<Arc<Supervision>>,
        /// All sockets that are the listener's.
        groups: Vec<Group>,
        done: mpsc::Sender<io::Result<()>>,
    },
    /// Accept connections, or leave them to others who have the sockets as well.
    SetAccepting {
        listener: ListenerId,
        is_on: bool,
        done: mpsc::Sender<()>,
    },
    /// Give the sockets of a listener once more.
    CopySockets {
        listener: ListenerId,
        done: mpsc::Sender<io::Result<Vec<OwnedFd>>>,
    },
    /// Hear the supervisor of the process, if it is not heard.
    Attend {
        supervision: Arc<Supervision>,
        done: mpsc::Sender<io::Result<()>>,
    },
    /// Do not any more.
    Unattend {
        done: mpsc::Sender<()>,
    },
    Drain {
        listener: ListenerId,
        done: mpsc::Sender<()>,
    },
    Count {
        listener: ListenerId,
        done: mpsc::Sender<usize>,
    },
    Stop {
        listener: ListenerId,
        done: mpsc::Sender<()>,
    },
    Halt {
        done: mpsc::Sender<()>,
    },
    Break {
        done: mpsc::Sender<()>,
    },
}

/// How orders reach the I/O thread.
#[derive(Debug, Default)]
pub(super) struct Control {
    orders: Mutex<Orders>,
    pub(super) came: Notify,
}

#[derive(Debug, Default)]
struct Orders {
    waiting: VecDeque<Order>,
    /// The thread has decided to end and takes no more.
    is_over: bool,
    /// Why it ended, when that was not its decision.
    failure: Option<io::Error>,
}

impl Control {
    /// Gives an order; it comes back when the thread has ended.
    pub(super) fn push(&self, order: Order) -> Result<(), Order> {
        let mut orders = self.orders();
        if orders.is_over {
            return Err(order);
        }
        orders.waiting.push_back(order);
        drop(orders);
        self.came.notify_one();
        Ok(())
    }

    pub(super) fn is_over(&self) -> bool {
        self.orders().is_over
    }

    pub(super) fn pop(&self) -> Option<Order> {
        self.orders().waiting.pop_front()
    }

    /// Ends the taking of orders unless one waits, which the thread has to carry out first. Returns whether it has ended.
    #[must_use = "a thread that ends while an order waits leaves its sender waiting"]
    pub(super) fn finish(&self) -> bool {
        let mut orders = self.orders();
        orders.is_over = orders.waiting.is_empty();
        orders.is_over
    }

    /// Closes the queue of orders and drops those that wait, so that each sender learns that its
    /// order is not carried out.
    pub(super) fn close(&self) {
        let mut orders = self.orders();
        orders.is_over = true;
        let unheard = std::mem::take(&mut orders.waiting);
        drop(orders);
        drop(unheard);
    }

    /// Closes, and keeps the reason for [`failure`](Self::failure).
    pub(super) fn fail(&self, failure: io::Error) {
        self.orders().failure = Some(failure);
        self.close();
    }

    /// Why the thread ended.
    pub(super) fn failure(&self) -> io::Error {
        self.orders().failure.take().unwrap_or_else(|| io::Error::other("the I/O thread has ended"))
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes a [`Control`] when it is dropped: the thread holds one, so that no order is left behind however the thread ends.
#[derive(Debug)]
pub(super) struct ClosesAtEnd<'a>(pub(super) &'a Control);

impl Drop for ClosesAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives an order, and returns what its sender waits for.
    fn give(control: &Control) -> mpsc::Receiver<usize> {
        let (done, wait) = mpsc::channel();
        control.push(Order::Count { listener: 1, done }).unwrap();
        wait
    }

    #[test]
    fn every_ending_answers_the_orders_that_wait_and_takes_no_more() {
        let endings: [fn(&Control); 3] = [
            Control::close,
            |control| control.fail(io::Error::other("broken")),
            |control| drop(ClosesAtEnd(control)),
        ];
        for ending in endings {
            let control = Control::default();
            let (first, second) = (give(&control), give(&control));
            assert!(!control.finish(), "an order that waits keeps the thread");
            ending(&control);
            assert_eq!((first.recv(), second.recv()), (Err(mpsc::RecvError), Err(mpsc::RecvError)));
            assert!(control.is_over());
            let (done, _wait) = mpsc::channel();
            assert!(control.push(Order::Count { listener: 1, done }).is_err());
        }
    }

    #[test]
    fn a_thread_that_panics_answers_the_orders_that_wait() {
        let control = Arc::new(Control::default());
        let wait = give(&control);
        let theirs = Arc::clone(&control);
        let thread = std::thread::spawn(move || {
            let _closes = ClosesAtEnd(&theirs);
            panic!("for the test");
        });
        assert!(thread.join().is_err());
        assert_eq!(wait.recv(), Err(mpsc::RecvError));
    }
}
