//! The course of one request at a worker, and what becomes of it when that ends.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rookery_exchange::{Command, Exchange};
use rookery_worker_protocol::{BodyState, Ticket, TicketGuard};

use super::deferred_body;
use super::error_reply::ErrorReply;
use super::framing::response_head::{Head, RequestForm};
use super::pool_backend::PoolBackend;
use super::queue::QueuedRequest;
use super::request_writer;
use super::response_forwarder::{self, Passed};
use super::spooled_body::SpooledBody;
use super::state::State;
use super::tunnel;
use super::worker_connection::{self, Failure, WorkerConnection};
use crate::backend_registry::Availability;

/// How often a request may come back from workers that had not begun it: 503 then.
const RETURNS: u32 = 2;

/// How long it may take until a worker whose connection has broken is known to have ended. Else it lives, and may yet begin the
/// request.
const DEATH_IS_KNOWN: Duration = Duration::from_secs(2);

/// Bytes of a body that go to a worker in a second at the least, from one disk to another.
const BODY_RATE: u64 = 20 << 20;

/// Returns how much longer a request with a body of this length may take to be begun.
fn time_to_send(bytes: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1000) / BODY_RATE)
}

/// Gives a request to a worker.
pub(super) fn start(
    state: &Rc<State>,
    worker: Rc<PoolBackend>,
    held: TicketGuard,
    waiting: QueuedRequest,
) {
    state.given.set(state.given.get() + 1);
    state.has_passed_on.set(true);
    waiting.exchange.set_waiting(false);
    let state = Rc::clone(state);
    tokio::task::spawn_local(async move {
        let ticket = held.ticket();
        let held = RefCell::new(Some(held));
        let since = Instant::now();
        let waited = since.duration_since(waiting.since);
        // Of an upload whose head goes first, its body does; unless the head is answered.
        if !waiting.is_head {
            state.counts().waited.add(waited);
        }
        waiting
            .exchange
            .update_upstream_log(|upstream| upstream.on_assigned(worker.as_upstream(), since));
        worker.backend.load.asked.add(ticket, since, &waiting.exchange);
        let limit =
            state.limits.queue_time.saturating_add(time_to_send(waiting.exchange.body().len()));
        let call = Attempt {
            state: &state,
            worker: &worker,
            ticket,
            held,
            since,
            begins_by: waiting.since.checked_add(limit),
            waited,
            came: waiting.came,
        };
        call.run(waiting).await;
        worker.end();
        state.assign();
    });
}

struct Attempt<'a> {
    state: &'a Rc<State>,
    worker: &'a Rc<PoolBackend>,
    ticket: Ticket,
    /// Until it is known whether R has begun: a reply may take for ever, and of tickets there are 1,024.
    held: RefCell<Option<TicketGuard>>,
    since: Instant,
    /// Until when R has to have begun the request; `None` for a time that will not come.
    begins_by: Option<Instant>,
    /// How long it has waited for this worker.
    waited: Duration,
    /// When the request came to the queue.
    came: Instant,
}

impl Attempt<'_> {
    async fn run(&self, mut waiting: QueuedRequest) {
        let ticket = self.ticket;
        let failure = if waiting.exchange.is_upgrade() {
            match self.open(&mut waiting.exchange).await {
                Ok((connection, head)) => {
                    self.has_answered(&waiting);
                    self.set_cookie(&mut waiting);
                    return self.pass_on_opened(waiting.exchange, connection, head).await;
                }
                Err(failure) => failure,
            }
        } else {
            let body_is = deferred_body::body_is(&waiting);
            match self.send(&mut waiting.exchange, body_is).await {
                Ok((connection, _))
                    if waiting.is_head && deferred_body::lets_body_come(&waiting.exchange) =>
                {
                    self.has_shown();
                    self.keep(connection);
                    return self.state.command(Command::ReadBody(deferred_body::goes_on(waiting)));
                }
                Ok((connection, head)) => {
                    self.has_answered(&waiting);
                    self.set_cookie(&mut waiting);
                    return self.pass_on(waiting.exchange, connection, head).await;
                }
                Err(failure) => failure,
            }
        };
        if matches!(failure, Some(Failure::NotBegun)) {
            // It has been withdrawn, so that R does not begin it any more.
            self.worker.forget(ticket);
            return self.state.let_go(waiting, self.worker);
        }
        let has_died =
            matches!(failure, Some(Failure::Unsent | Failure::Lost)) && self.has_died().await;
        let refusal = match failure {
            None => ErrorReply::Unsendable,
            Some(Failure::Unreadable) => ErrorReply::Unreadable,
            Some(Failure::TookTooLong) => ErrorReply::TookTooLong,
            Some(Failure::NotBegun) => ErrorReply::NoWorker,
            // Before its end was known, it would have been given to the same again.
            Some(Failure::Unsent) => ErrorReply::Returned,
            Some(Failure::Lost)
                if has_died && !self.worker.backend.scoreboard.has_begun(ticket) =>
            {
                ErrorReply::Returned
            }
            Some(Failure::Lost) => ErrorReply::Died,
        };
        self.worker.forget(ticket);
        if refusal == ErrorReply::Returned && waiting.returns < RETURNS {
            waiting.returns += 1;
            self.state.counts().returned.add(1);
            return self.state.put_back(waiting, self.waited);
        }
        if refusal == ErrorReply::Died && has_died && self.begins_again(&mut waiting) {
            self.state.counts().begun_again.add(1);
            return self.state.put_back(waiting, self.waited);
        }
        self.state.refuse(waiting, refusal);
    }

    /// Whether another may begin with a request whose worker has ended with it. A second one never does: it may be what ended them.
    fn begins_again(&self, waiting: &mut QueuedRequest) -> bool {
        waiting.deaths += 1;
        let exchange = &waiting.exchange;
        let is_safe =
            matches!(exchange.method(), b"GET" | b"HEAD" | b"OPTIONS") && !exchange.is_upgrade();
        self.state.limits.retries_begun && is_safe && waiting.deaths == 1
    }

    async fn send(
        &self,
        exchange: &mut Exchange,
        body_is: BodyState,
    ) -> Result<(WorkerConnection, Head), Option<Failure>> {
        let mut request = self.state.buffer();
        request_writer::write(
            &mut request,
            exchange,
            self.state.cookie_names(),
            self.ticket,
            body_is,
        )
        .map_err(|_| None)?;
        let file = SpooledBody::of(exchange).map_err(|_| None)?;
        let asked =
            if exchange.method() == b"HEAD" { RequestForm::Head } else { RequestForm::Other };
        let mut connection = worker_connection::connection(self.worker).await?;
        let asking = connection.ask(self.state, request, file, asked, exchange);
        let head = self.unless_let_go(asking).await?;
        Ok((connection, head))
    }

    /// Waits for an answer, unless the worker is to be waited for no longer.
    async fn unless_let_go<T>(
        &self,
        sending: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let is_let_go = async {
            loop {
                let told = self.state.news.notified();
                if let Some(failure) = self.let_go_for() {
                    return failure;
                }
                told.await;
            }
        };
        tokio::select! {
            // It is known before R is interrupted: what R answers to that is not the answer, though both may be there at once.
            biased;
            failure = is_let_go => Err(failure),
            response = sending => response,
        }
    }

    /// Returns why the worker is not waited for any longer: R has begun the request and takes too long for
    /// it, or R has not begun it within the time that a request may wait. In the second case the request
    /// has been withdrawn from the worker.
    fn let_go_for(&self) -> Option<Failure> {
        let backend = &self.worker.backend;
        if backend.scoreboard.has_begun(self.ticket) {
            return backend.is_given_up().then_some(Failure::TookTooLong);
        }
        let is_late = self.begins_by.is_some_and(|until| Instant::now() >= until);
        (is_late && backend.scoreboard.withdraw(self.ticket)).then_some(Failure::NotBegun)
    }

    /// Sends an opening handshake over a connection of its own.
    async fn open(
        &self,
        exchange: &mut Exchange,
    ) -> Result<(WorkerConnection, Head), Option<Failure>> {
        let mut request = self.state.buffer();
        let is_sticky = self.worker.backend.is_sticky();
        let (names, key) = (self.state.cookie_names(), tunnel::key());
        request_writer::write_handshake(
            &mut request,
            exchange,
            names,
            self.ticket,
            &key,
            is_sticky,
        )
        .map_err(|_| None)?;
        let opening = async {
            let mut connection = worker_connection::open(self.worker).await?;
            let head =
                connection.ask(self.state, request, None, RequestForm::Upgrade, exchange).await?;
            Ok((connection, head))
        };
        Ok(self.unless_let_go(opening).await?)
    }

    async fn pass_on(&self, exchange: Box<Exchange>, mut connection: WorkerConnection, head: Head) {
        if response_forwarder::pass_on(self.state, exchange, &mut connection, head).await
            == Passed::Whole
        {
            self.keep(connection);
        }
    }

    /// Keeps a connection whose reply has been read, for another request.
    fn keep(&self, connection: WorkerConnection) {
        if let Some(connection) = connection.settled(self.state) {
            self.worker.keep(connection);
        }
    }

    async fn pass_on_opened(
        &self,
        exchange: Box<Exchange>,
        connection: WorkerConnection,
        head: Head,
    ) {
        if head.status == 101 {
            return tunnel::start(self.state, self.worker, exchange, connection);
        }
        self.worker.has_come();
        self.pass_on(exchange, connection, head).await;
    }

    /// Tells the client which worker it came to, if it is told.
    fn set_cookie(&self, waiting: &mut QueuedRequest) {
        if waiting.tells {
            let (cookie, session) = self.state.cookie(self.worker, waiting.exchange.is_https());
            if response_forwarder::set_cookie(&mut waiting.exchange, &cookie) {
                waiting.exchange.update_upstream_log(|upstream| upstream.session = Some(session));
            }
        }
    }

    /// R has seen a head, and the body is to come: what is counted is the request, once.
    fn has_shown(&self) {
        self.worker.forget(self.ticket);
        self.held.take();
        self.state.assign();
    }

    fn has_answered(&self, waiting: &QueuedRequest) {
        let (counts, now) = (self.state.counts(), Instant::now());
        let took = now.duration_since(self.since);
        waiting.exchange.update_upstream_log(|upstream| upstream.response_time = Some(took));
        if waiting.is_head {
            counts.waited.add(self.waited);
        }
        counts.took.add(took);
        counts.answered_in.add(now.duration_since(self.came));
        self.worker.has_answered(self.ticket, self.since);
        self.held.take();
        // R may have time for the next, while this reply is passed on.
        self.state.assign();
    }

    /// Whether the worker has ended, which is known soon after its connections break.
    async fn has_died(&self) -> bool {
        self.worker.suspect();
        let is_dead = || self.worker.backend.standing() == Availability::Dead;
        let known = async {
            loop {
                let told = self.state.news.notified();
                if is_dead() {
                    return;
                }
                told.await;
            }
        };
        tokio::time::timeout(DEATH_IS_KNOWN, known).await.is_ok() || is_dead()
    }
}
