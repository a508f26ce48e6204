//! Orders to the I/O thread, and how they reach it.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use rookery_exchange::ListenerId;
use tokio::sync::Notify;

use super::supervision::Supervision;
use crate::http::site::Site;
use crate::net::listen::Bound;

/// What the I/O thread is told to do.
#[derive(Debug)]
pub(super) enum Order {
    Listen {
        listener: ListenerId,
        /// All that are the listener's.
        bound: Vec<Bound>,
        site: Box<Site>,
        done: mpsc::Sender<io::Result<()>>,
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

    /// Ends the taking of orders, unless one waits.
    pub(super) fn finish(&self) -> bool {
        let mut orders = self.orders();
        orders.is_over = orders.waiting.is_empty();
        orders.is_over
    }

    /// Ends the taking of orders; whoever waits for one hears that nobody carries it out.
    pub(super) fn fail(&self, failure: io::Error) {
        let mut orders = self.orders();
        orders.is_over = true;
        orders.failure = Some(failure);
        let unheard = std::mem::take(&mut orders.waiting);
        drop(orders);
        drop(unheard);
    }

    /// Why the thread ended.
    pub(super) fn failure(&self) -> io::Error {
        self.orders().failure.take().unwrap_or_else(|| io::Error::other("the I/O thread has ended"))
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
