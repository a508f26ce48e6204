//! Asking the application, and waiting for its answer.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use rookery_exchange::{Ended, Event, Exchange, Fate, PushError};

use super::call::Call;
use super::connection::Connection;
use crate::application::dispatch::Answer;

/// The client has gone: there is nobody to answer.
#[derive(Debug)]
pub(super) struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client has gone")
    }
}

impl std::error::Error for Gone {}

/// Why the application is not waited for any more.
#[derive(Debug)]
pub(super) enum Lost {
    /// The client has gone.
    Gone,
    /// The application has had its time.
    Overdue,
}

/// Why there is no answer.
pub(super) enum Unanswered {
    /// Too many wait for the application: the exchange has come back.
    Refused(Box<Exchange>),
    /// The client has gone.
    Gone,
    /// The application has had its time.
    Overdue,
    /// The application keeps the exchange, and has its body come in pieces.
    Receives(Asking),
}

/// Hands the exchange of a call to the application and waits for its answer.
pub(super) async fn ask(
    call: &mut Call,
    exchange: Box<Exchange>,
    event: fn(Box<Exchange>) -> Event,
) -> Result<Answer, Unanswered> {
    call.is_asked();
    let mut asking = Asking::new(&call.connection, &exchange);
    let mut logged = Logged::new(call, &exchange);
    match logged.call.http().dispatch.push(event(exchange)) {
        Ok(()) => match (&mut asking).await {
            Ok(Answer::Receive(_)) => {
                asking.is_over = false;
                Err(Unanswered::Receives(asking))
            }
            Ok(answer) => Ok(answer),
            Err(Lost::Gone) => Err(Unanswered::Gone),
            Err(Lost::Overdue) => {
                logged.ended = Some(Ended::Time);
                Err(Unanswered::Overdue)
            }
        },
        Err(PushError::Full(exchange)) => {
            asking.cancel();
            Err(Unanswered::Refused(exchange))
        }
        Err(_) => Err(Unanswered::Gone),
    }
}

/// Has the log's entry say what became of the request at workers, however the asking ends: also when it is dropped, since the client has
/// gone and the application keeps the exchange.
struct Logged<'a> {
    call: &'a mut Call,
    /// Of a request that is logged.
    fate: Option<Arc<Fate>>,
    ended: Option<Ended>,
}

impl<'a> Logged<'a> {
    fn new(call: &'a mut Call, exchange: &Exchange) -> Logged<'a> {
        let fate = call.is_logged().then(|| exchange.fate());
        Logged { call, fate, ended: None }
    }
}

impl Drop for Logged<'_> {
    fn drop(&mut self) {
        let Some(mut upstream) = self.fate.as_ref().and_then(|fate| fate.upstream()) else {
            return;
        };
        upstream.ended = self.ended.or(upstream.ended);
        self.call.pending_record().set_upstream(upstream);
    }
}

/// Waits for the application. Dropped before, it tells the application that nobody waits for its answer.
#[derive(Debug)]
pub(super) struct Asking {
    connection: Rc<Connection>,
    slot: u32,
    fate: Arc<Fate>,
    is_over: bool,
}

impl Asking {
    fn new(connection: &Rc<Connection>, exchange: &Exchange) -> Asking {
        Asking {
            connection: Rc::clone(connection),
            slot: exchange.slot(),
            fate: exchange.fate(),
            is_over: false,
        }
    }

    /// The answer, when it has come. Does not look whether there is anybody to answer.
    pub(super) fn answer(&mut self) -> Option<Answer> {
        let answer = self.connection.http.dispatch.answer(self.slot);
        self.is_over |= answer.is_some();
        answer
    }

    /// The exchange was not handed over after all.
    fn cancel(mut self) {
        self.is_over = true;
    }
}

impl Future for Asking {
    type Output = Result<Answer, Lost>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Woken by the connection's own waker, which it keeps while it is driven.
        if let Some(answer) = self.answer() {
            return Poll::Ready(Ok(answer));
        }
        if self.connection.is_overdue() {
            return Poll::Ready(Err(Lost::Overdue));
        }
        // Asked first, since that is what finds a FIN.
        let has_gone = self.connection.is_reset(cx)
            || (self.fate.is_waiting() && self.connection.waits_no_more());
        if has_gone { Poll::Ready(Err(Lost::Gone)) } else { Poll::Pending }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.is_over {
            self.fate.depart();
            let http = &self.connection.http;
            if self.fate.is_waiting() {
                http.dispatch.application.has_left();
            }
            match http.dispatch.abandon(self.slot) {
                Some(exchange) => http.disown(exchange),
                None => self.connection.leaves_behind(&self.fate),
            }
        }
    }
}

/// Closes the place of an exchange whose body is being read, should that end before [`Reading::done`].
#[derive(Debug)]
pub(super) struct Reading {
    connection: Rc<Connection>,
    slot: u32,
    is_done: bool,
}

impl Reading {
    pub(super) fn new(call: &Call, exchange: &Exchange) -> Reading {
        Reading { connection: Rc::clone(&call.connection), slot: exchange.slot(), is_done: false }
    }

    pub(super) fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if !self.is_done {
            self.connection.http.dispatch.abandon(self.slot);
        }
    }
}
