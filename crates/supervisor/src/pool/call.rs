//! The course of one request at a worker, and what becomes of it when that ends.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rookery_exchange::Exchange;
use rookery_worker::{Held, Ticket};

use super::answer::Refusal;
use super::connection::{self, Failure};
use super::queue::Waiting;
use super::relay;
use super::reply::{self, Passed};
use super::request;
use super::state::State;
use super::worker::Worker;
use crate::roster::Standing;

/// How often a request may come back from workers that had not begun it: 503 then.
const RETURNS: u32 = 2;

/// How long it may take until a worker whose connection has broken is known to have ended. Else it lives, and may yet begin the
/// request.
const DEATH_IS_KNOWN: Duration = Duration::from_secs(2);

/// Gives a request to a worker.
pub(super) fn start(state: &Rc<State>, worker: Rc<Worker>, held: Held, waiting: Waiting) {
    state.given.set(state.given.get() + 1);
    let state = Rc::clone(state);
    tokio::task::spawn_local(async move {
        let ticket = held.ticket();
        let held = RefCell::new(Some(held));
        let since = Instant::now();
        state.counts().waited.add(since.duration_since(waiting.since));
        worker.member.load.asked.add(ticket, since, &waiting.exchange);
        let call = Call { state: &state, worker: &worker, ticket, held, since };
        call.run(waiting).await;
        worker.end();
        state.assign();
    });
}

struct Call<'a> {
    state: &'a Rc<State>,
    worker: &'a Rc<Worker>,
    ticket: Ticket,
    /// Until it is known whether R has begun: a reply may take for ever, and of tickets there are 1,024.
    held: RefCell<Option<Held>>,
    since: Instant,
}

impl Call<'_> {
    async fn run(&self, mut waiting: Waiting) {
        let ticket = self.ticket;
        let failure = if waiting.exchange.is_upgrade() {
            match self.open(&waiting.exchange).await {
                Ok(opened) => {
                    let cookie = self.cookie(&waiting);
                    return self.pass_on_opened(waiting.exchange, opened, cookie).await;
                }
                Err(failure) => failure,
            }
        } else {
            match self.send(&waiting.exchange).await {
                Ok((connection, response)) => {
                    self.has_answered();
                    let cookie = self.cookie(&waiting);
                    if reply::pass_on(self.state, waiting.exchange, response, cookie).await == Passed::Whole {
                        self.worker.keep(connection);
                    }
                    return;
                }
                Err(failure) => failure,
            }
        };
        let refusal = match failure {
            None => Refusal::Unsendable,
            Some(Failure::Unreadable) => Refusal::Unreadable,
            Some(Failure::TookTooLong) => Refusal::TookTooLong,
            Some(Failure::Unsent) => {
                // Before that is known, it would be given to the same again.
                self.has_died().await;
                Refusal::Returned
            }
            Some(Failure::Lost) if self.has_died().await && !self.worker.member.board.has_begun(ticket) => {
                Refusal::Returned
            }
            Some(Failure::Lost) => Refusal::Died,
        };
        self.worker.forget(ticket);
        if refusal == Refusal::Returned && waiting.returns < RETURNS {
            waiting.returns += 1;
            self.state.counts().returned.add(1);
            return self.state.put_back(waiting);
        }
        self.state.refuse(waiting, refusal);
    }

    async fn send(
        &self,
        exchange: &Exchange,
    ) -> Result<(connection::Connection, http::Response<hyper::body::Incoming>), Option<Failure>> {
        let request = request::request(exchange, self.ticket).map_err(|_| None)?;
        let mut connection = connection::connection(self.worker).await?;
        let sending = connection::send(&mut connection, request);
        let response =
            if self.state.limits.gives_up { self.unless_given_up(sending).await } else { sending.await }?;
        Ok((connection, response))
    }

    /// Waits for an answer, unless R is known to take too long for this request. One that R has not begun waits on: it has an answer
    /// yet, or goes to another worker when this one has ended.
    async fn unless_given_up<T>(
        &self,
        sending: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let member = &self.worker.member;
        let is_given_up = async {
            loop {
                let told = self.state.deaths.notified();
                if member.is_given_up() && member.board.has_begun(self.ticket) {
                    return;
                }
                told.await;
            }
        };
        tokio::select! {
            biased;
            response = sending => response,
            () = is_given_up => Err(Failure::TookTooLong),
        }
    }

    async fn open(&self, exchange: &Exchange) -> Result<connection::Opened, Option<Failure>> {
        let request = request::handshake(exchange, self.ticket, relay::key(), self.worker.member.is_sticky())
            .map_err(|_| None)?;
        let opening = connection::open_websocket(self.worker, request);
        if self.state.limits.gives_up {
            return Ok(self.unless_given_up(opening).await?);
        }
        Ok(opening.await?)
    }

    async fn pass_on_opened(
        &self,
        exchange: Box<Exchange>,
        opened: connection::Opened,
        cookie: Option<String>,
    ) {
        self.has_answered();
        match opened {
            connection::Opened::WebSocket(response, socket, rest) => {
                let accepted = relay::Accepted { response, socket, rest, cookie };
                relay::start(self.state, self.worker, exchange, accepted);
            }
            connection::Opened::Refused(response, connection) => {
                self.worker.has_come();
                if reply::pass_on(self.state, exchange, response, cookie).await == Passed::Whole {
                    self.worker.keep(connection);
                }
            }
        }
    }

    /// What tells the client which worker it came to, if it is told.
    fn cookie(&self, waiting: &Waiting) -> Option<String> {
        waiting.tells.then(|| self.state.cookie(self.worker, waiting.exchange.is_https()))
    }

    fn has_answered(&self) {
        self.state.counts().took.add(self.since.elapsed());
        self.worker.has_answered(self.ticket, self.since);
        self.held.take();
        // R may have time for the next, while this reply is passed on.
        self.state.assign();
    }

    /// Whether the worker has ended, which is known soon after its connections break.
    async fn has_died(&self) -> bool {
        self.worker.suspect();
        let is_dead = || self.worker.member.standing() == Standing::Dead;
        let known = async {
            loop {
                let told = self.state.deaths.notified();
                if is_dead() {
                    return;
                }
                told.await;
            }
        };
        tokio::time::timeout(DEATH_IS_KNOWN, known).await.is_ok() || is_dead()
    }
}
