//! A worker as the pool sees it: what it has been sent, and whether its R can begin with more.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rookery_exchange::UpstreamWorker;
use rookery_worker::{Held, Ticket, Tickets, now};

use super::PoolLimits;
use super::connection::Connection;
use super::pace::{Pace, Work};
use super::queue::Queue;
use crate::roster::{Member, Standing};

/// Connections that are kept for the next requests: more are needed only for replies that take long.
const KEPT_CONNECTIONS: usize = 64;

/// How long a worker is given nothing whose connection has broken, unless it is known before that it has ended.
const SUSPECTED: Duration = Duration::from_secs(1);

/// How long a page's WebSocket is awaited, as Shiny Server has it: a page may bring many scripts.
const RESERVED: Duration = Duration::from_secs(45);

/// See the module.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) member: Arc<Member>,
    tickets: Tickets,
    /// Requests that it has and has not answered.
    unanswered: RefCell<Vec<Ticket>>,
    connections: RefCell<Vec<Connection>>,
    pace: Cell<Pace>,
    /// Requests that only it can answer.
    pub(super) queue: RefCell<Queue>,
    /// Pages that it was given whose WebSocket has not come, each until when that is awaited.
    reserved: RefCell<VecDeque<Instant>>,
    /// Until when it is given nothing, because a connection to it has broken.
    suspected: Cell<Option<Instant>>,
    /// Which choice it was last, for turns among equals.
    pub(super) chosen: Cell<u64>,
}

/// What there is to be said for a worker; the least is the best.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Preference {
    is_busy: bool,
    unanswered: usize,
    /// Of those that have nothing to do, one whose R has not gone to sleep.
    is_asleep: bool,
    chosen: u64,
}

impl Worker {
    pub(super) fn new(member: Arc<Member>) -> Rc<Worker> {
        let pace = Pace::new(work(&member));
        Rc::new(Worker {
            member,
            tickets: Tickets::new(),
            unanswered: RefCell::default(),
            connections: RefCell::default(),
            pace: Cell::new(pace),
            queue: RefCell::default(),
            reserved: RefCell::default(),
            suspected: Cell::new(None),
            chosen: Cell::new(0),
        })
    }

    /// As the access log has it.
    pub(super) fn as_upstream(&self) -> UpstreamWorker {
        let Member { slot, pid, epoch, .. } = *self.member;
        UpstreamWorker { slot, pid, epoch }
    }

    /// Whether it is to be given a request now, and how gladly.
    pub(super) fn preference(&self, limits: &PoolLimits) -> Option<Preference> {
        if !self.is_taken_for_ready() {
            return None;
        }
        let unanswered = self.unanswered.borrow();
        if unanswered.len() >= limits.in_flight {
            return None;
        }
        let board = &self.member.board;
        let waiting = unanswered.iter().filter(|ticket| !board.has_begun(**ticket)).count();
        let read = board.read();
        let now = now();
        let is_idle = read.is_idle(now);
        // R has begun all that it was sent, and waits for their promises; or it has just answered, and will wait.
        let is_free = waiting == 0 && (is_idle || self.has_just_answered(unanswered.len()));
        let ahead = self.pace.get().ahead(if is_idle { Duration::ZERO } else { read.lasts(now) });
        (is_free || waiting < ahead.max(limits.ahead)).then(|| Preference {
            is_busy: !is_idle,
            unanswered: unanswered.len(),
            is_asleep: !self.pace.get().is_awake(Instant::now()),
            chosen: self.chosen.get(),
        })
    }

    /// Whether it is ready, as far as is known.
    pub(super) fn is_taken_for_ready(&self) -> bool {
        let is_suspected = self.suspected.get().is_some_and(|until| Instant::now() < until);
        self.member.standing() == Standing::Ready && !is_suspected
    }

    /// A connection to it has broken: it will be known soon whether it has ended.
    pub(super) fn suspect(&self) {
        self.suspected.set(Some(Instant::now() + SUSPECTED));
    }

    fn has_just_answered(&self, unanswered: usize) -> bool {
        unanswered == 0 && self.pace.get().has_just_answered(Instant::now())
    }

    // ---- requests ----

    /// A ticket for a request that it is given; `None` when it has as many as a scoreboard has places for.
    pub(super) fn begin(&self) -> Option<Held> {
        let held = self.tickets.take()?;
        self.unanswered.borrow_mut().push(held.ticket());
        self.member.load.in_flight.fetch_add(1, Ordering::Relaxed);
        Some(held)
    }

    /// It has answered, `since` it was given the request.
    pub(super) fn has_answered(&self, ticket: Ticket, since: Instant) {
        self.forget(ticket);
        let mut pace = self.pace.get();
        pace.has_answered(work(&self.member), since, Instant::now());
        self.pace.set(pace);
        self.member.load.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// The answer to a request is not waited for any more.
    pub(super) fn forget(&self, ticket: Ticket) {
        self.unanswered.borrow_mut().retain(|other| *other != ticket);
        self.member.load.asked.remove(ticket);
    }

    /// A request has been dealt with, its reply's body included.
    pub(super) fn end(&self) {
        self.member.load.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    // ---- sessions ----

    /// A page has been asked for, whose session will be its.
    pub(super) fn reserve(&self) {
        let mut reserved = self.reserved.borrow_mut();
        reserved.push_back(Instant::now() + RESERVED);
        self.member.load.pending_sessions.set(reserved.len() as u64);
    }

    /// Whether it may have one session more.
    pub(super) fn may_have_another(&self, limits: &PoolLimits) -> bool {
        limits.sessions == usize::MAX || self.sessions().0 < limits.sessions
    }

    /// The WebSocket of a page has come, or will not.
    pub(super) fn has_come(&self) {
        let mut reserved = self.reserved.borrow_mut();
        reserved.pop_front();
        self.member.load.pending_sessions.set(reserved.len() as u64);
    }

    /// Its sessions, those to come among them, its requests, and when it was chosen last: the least is the best for a new one.
    pub(super) fn sessions(&self) -> (usize, usize, u64) {
        let mut reserved = self.reserved.borrow_mut();
        let now = Instant::now();
        while reserved.front().is_some_and(|until| *until <= now) {
            reserved.pop_front();
        }
        self.member.load.pending_sessions.set(reserved.len() as u64);
        let open = self.member.load.sessions.load(Ordering::Relaxed);
        (open + reserved.len(), self.unanswered.borrow().len(), self.chosen.get())
    }

    /// Whether it may be given another request.
    pub(super) fn has_place(&self, limits: &PoolLimits) -> bool {
        self.unanswered.borrow().len() < limits.in_flight
    }

    // ---- connections ----

    /// A connection that has been used before.
    pub(super) fn connection(&self) -> Option<Connection> {
        let mut connections = self.connections.borrow_mut();
        // The one that was used last: others may be let go.
        std::iter::from_fn(|| connections.pop()).find_map(|mut kept| kept.is_silent().then_some(kept))
    }

    /// Keeps a connection for the next request.
    pub(super) fn keep(&self, connection: Connection) {
        let mut connections = self.connections.borrow_mut();
        if connections.len() < KEPT_CONNECTIONS && self.member.standing() != Standing::Dead {
            connections.push(connection);
        }
    }

    /// It is given nothing more.
    pub(super) fn let_go(&self) {
        self.connections.borrow_mut().clear();
    }
}

/// What a worker's R has done.
fn work(member: &Member) -> Work {
    let read = member.board.read();
    Work { answering: read.answering, done: read.done }
}
