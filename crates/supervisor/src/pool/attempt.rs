//! An attempt to have a request answered by a worker process. It sends the request and forwards the
//! response. If the worker does not respond, the attempt decides whether another worker gets the
//! request.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rookery_exchange::{AppTimes, Command, Exchange};
use rookery_worker_protocol::{BodyState, Ticket, TicketGuard};

use super::balancing::balancer::Assignment;
use super::balancing::queue::QueuedRequest;
use super::balancing::worker_load::PoolBackend;
use super::connection::SpooledBody;
use super::connection::framing::response_head::{Head, RequestForm};
use super::connection::request_writer;
use super::connection::response_headers;
use super::connection::worker_connection::{Failure, WorkerConnection};
use super::context::PoolContext;
use super::deferred_body;
use super::error_reply::ErrorReply;
use super::limits::PoolLimits;
use super::response_forwarder::{self, Forwarded};
use super::tunnel::{self, Tunnel};
use crate::backend::Availability;

/// The maximum number of times that a request is queued again because a worker ended before its R
/// process had begun the request. After that the client gets 503.
pub(super) const MAX_RETURNS: u32 = 2;

/// The maximum time to wait for the supervisor's report that a worker has ended, after a connection
/// to the worker broke. The request may be sent to another worker only if the report shows that the
/// first worker will not process it.
const DEATH_REPORT_TIME: Duration = Duration::from_secs(2);

/// The lowest rate, in bytes per second, at which a request body is assumed to be sent to a worker.
/// Even large bodies, which are read from temporary files, are sent faster.
const MIN_BODY_RATE: u64 = 20 << 20;

/// Returns the time that is allowed for sending a request body of this length to a worker. R's
/// deadline to begin the request is extended by this time.
pub(super) fn time_to_send(bytes: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1000) / MIN_BODY_RATE)
}

/// A function that assigns queued requests to workers. It is called when a worker may be able to
/// begin another request.
pub(super) type Dispatch = fn(&Rc<PoolContext>);

/// Sends a request to the worker that was assigned to it, and forwards the response to the client.
pub(super) async fn run(pool: Rc<PoolContext>, assignment: Assignment, dispatch: Dispatch) {
    // The fields are borrowed, because moving them out would enlarge this future.
    let (backend, request) = (&assignment.backend, &assignment.request);
    let ticket = assignment.ticket.ticket();
    let sent_at = Instant::now();
    let waited = sent_at.duration_since(request.queued_since);
    // A request whose head is sent before its body counts in the queue time only once: with the
    // body, or with the response if the app responds to the head.
    if !request.is_head_only {
        pool.responder.counters().queue_time.add(waited);
    }
    request
        .exchange
        .update_upstream_log(|upstream| upstream.on_assigned(backend.upstream_worker(), sent_at));
    let sending = time_to_send(request.exchange.body().len());
    let begin_timeout = pool.limits.queue_timeout.saturating_add(sending);
    let attempt = Attempt {
        pool: &pool,
        backend,
        ticket,
        guard: RefCell::new(Some(assignment.ticket)),
        sent_at,
        begin_deadline: request.queued_since.checked_add(begin_timeout),
        waited,
        received_at: request.received_at,
        dispatch,
    };
    attempt.run(assignment.request).await;
    backend.finish_request();
    dispatch(&pool);
}

/// Returns true if another worker may process a request after its worker died while R was
/// processing it. This is allowed only once per request, because the request itself may be the
/// cause of the death.
pub(super) fn may_retry_begun(limits: &PoolLimits, request: &QueuedRequest) -> bool {
    let exchange = &request.exchange;
    let is_safe =
        matches!(exchange.method(), b"GET" | b"HEAD" | b"OPTIONS") && !exchange.is_upgrade();
    limits.retry_safe_methods && is_safe && request.deaths == 1
}

struct Attempt<'a> {
    pool: &'a Rc<PoolContext>,
    backend: &'a Rc<PoolBackend>,
    ticket: Ticket,
    /// The guard that holds the request's ticket, that is, its number on the worker's scoreboard.
    /// It is dropped as soon as the head of the response has arrived, because there are only 1,024
    /// tickets and another request may need this one.
    guard: RefCell<Option<TicketGuard>>,
    sent_at: Instant,
    /// The time by which R has to begin the request, or `None` for no deadline.
    begin_deadline: Option<Instant>,
    /// The time that the request waited in the queue before this attempt to send it to a worker.
    waited: Duration,
    /// The time at which the pool received the request from the server.
    received_at: Instant,
    dispatch: Dispatch,
}

impl Attempt<'_> {
    async fn run(&self, mut request: QueuedRequest) {
        let failure = if request.exchange.is_upgrade() {
            match self.send_handshake(&mut request.exchange).await {
                Ok((connection, head)) => {
                    self.on_response(&mut request);
                    self.set_cookie(&mut request);
                    if head.status == 101 {
                        return self.open_tunnel(request.exchange, connection);
                    }
                    self.backend.release_reservation();
                    return self.forward(request.exchange, connection, head).await;
                }
                Err(failure) => failure,
            }
        } else {
            let body_state = deferred_body::body_state(&request);
            match self.send(&mut request.exchange, body_state).await {
                Ok((connection, _))
                    if request.is_head_only && deferred_body::wants_body(&request.exchange) =>
                {
                    self.on_head_seen();
                    self.keep_connection(connection);
                    let exchange = deferred_body::into_exchange_for_body(request);
                    return self.pool.responder.send_command(Command::ReadBody(exchange));
                }
                Ok((connection, head)) => {
                    self.on_response(&mut request);
                    self.set_cookie(&mut request);
                    return self.forward(request.exchange, connection, head).await;
                }
                Err(failure) => failure,
            }
        };
        if matches!(failure, Some(Failure::NotBegun)) {
            // The request has been withdrawn on the scoreboard, so R will not begin it.
            self.backend.forget_request(self.ticket);
            self.pool.balancer.requeue_unbegun(request, self.backend);
            return (self.dispatch)(self.pool);
        }
        let has_died = matches!(failure, Some(Failure::Unsent | Failure::Lost))
            && self.wait_for_death_report().await;
        let error = match failure {
            None => ErrorReply::Unsendable,
            Some(Failure::Malformed) => ErrorReply::Malformed,
            Some(Failure::Timeout) => ErrorReply::Timeout,
            Some(Failure::NotBegun) => ErrorReply::NoWorker,
            // This is decided only after waiting for the death report. If the request were queued
            // earlier, the balancer could assign it to the dead worker again.
            Some(Failure::Unsent) => ErrorReply::WorkersEnded,
            Some(Failure::Lost)
                if has_died && !self.backend.entry.scoreboard.has_begun(self.ticket) =>
            {
                ErrorReply::WorkersEnded
            }
            Some(Failure::Lost) => ErrorReply::WorkerDied,
        };
        self.backend.forget_request(self.ticket);
        let counters = self.pool.responder.counters();
        if error == ErrorReply::WorkersEnded && request.returns < MAX_RETURNS {
            request.returns += 1;
            counters.retries_unbegun.add(1);
            self.pool.balancer.requeue(request, self.waited);
            return (self.dispatch)(self.pool);
        }
        if error == ErrorReply::WorkerDied && has_died {
            request.deaths += 1;
            if may_retry_begun(&self.pool.limits, &request) {
                counters.retries_begun.add(1);
                self.pool.balancer.requeue(request, self.waited);
                return (self.dispatch)(self.pool);
            }
        }
        self.pool.responder.reject(request, error);
    }

    /// Sends a request to the worker and waits for the head of the response.
    async fn send(
        &self,
        exchange: &mut Exchange,
        body_state: BodyState,
    ) -> Result<(WorkerConnection, Head), Option<Failure>> {
        let mut request = self.pool.buffers.take();
        let names = self.pool.balancer.cookie_names();
        let accepts_compressed = self.pool.limits.accepts_compressed;
        let ticket = (self.ticket, body_state);
        request_writer::write(&mut request, exchange, names, ticket, accepts_compressed)
            .map_err(|_| None)?;
        let file = SpooledBody::of(exchange).map_err(|_| None)?;
        let form =
            if exchange.method() == b"HEAD" { RequestForm::Head } else { RequestForm::Other };
        let mut connection = self.backend.connect().await?;
        let sending = connection.send(&self.pool.buffers, request, file, form, exchange);
        let head = self.unless_given_up(sending).await?;
        Ok((connection, head))
    }

    /// Sends the opening handshake of a WebSocket to the worker over a new connection, and waits
    /// for the head of the response.
    async fn send_handshake(
        &self,
        exchange: &mut Exchange,
    ) -> Result<(WorkerConnection, Head), Option<Failure>> {
        let mut request = self.pool.buffers.take();
        let is_sticky = self.backend.entry.is_sticky();
        let (names, key) = (self.pool.balancer.cookie_names(), tunnel::handshake_key());
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
            let mut connection = self.backend.connect_new().await?;
            let (buffers, form) = (&self.pool.buffers, RequestForm::Upgrade);
            let head = connection.send(buffers, request, None, form, exchange).await?;
            Ok((connection, head))
        };
        Ok(self.unless_given_up(opening).await?)
    }

    /// Waits until the worker's response has arrived or there is a [reason to give
    /// up](Self::give_up_reason).
    async fn unless_given_up<T>(
        &self,
        sending: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let given_up = async {
            loop {
                let changed = self.pool.balancer.changed.notified();
                if let Some(failure) = self.give_up_reason() {
                    return failure;
                }
                changed.await;
            }
        };
        let response = tokio::select! {
            biased;
            failure = given_up => return Err(failure),
            response = sending => response,
        };
        // The timeout takes precedence over a response that has arrived before this task was
        // notified of it. The supervisor records the timeout before it interrupts R, and what R
        // responds to an interrupt is not the app's response.
        if self.has_timed_out() { Err(Failure::Timeout) } else { response }
    }

    /// Returns the reason to stop waiting for the worker's response, if there is one: either the
    /// worker has exceeded the worker timeout with this request, or R has not begun the request by
    /// its deadline. In the second case, this method withdraws the request from the worker.
    fn give_up_reason(&self) -> Option<Failure> {
        let entry = &self.backend.entry;
        if entry.scoreboard.has_begun(self.ticket) {
            return self.has_timed_out().then_some(Failure::Timeout);
        }
        let is_late = self.begin_deadline.is_some_and(|deadline| Instant::now() >= deadline);
        (is_late && entry.scoreboard.withdraw(self.ticket)).then_some(Failure::NotBegun)
    }

    /// Returns true if R was processing the request when the worker exceeded the worker timeout.
    fn has_timed_out(&self) -> bool {
        self.backend.entry.has_timed_out(self.ticket)
    }

    async fn forward(&self, exchange: Box<Exchange>, mut connection: WorkerConnection, head: Head) {
        let forwarded =
            response_forwarder::forward(self.pool, exchange, &mut connection, head).await;
        if forwarded == Forwarded::Complete {
            self.keep_connection(connection);
        }
    }

    /// Opens a WebSocket tunnel between the client and the worker, over a connection on which the
    /// worker has accepted the opening handshake.
    fn open_tunnel(&self, exchange: Box<Exchange>, connection: WorkerConnection) {
        self.pool.balancer.count_reconnect(&exchange, self.backend);
        let tunnel = Tunnel::new(self.backend, connection);
        let id = exchange.id();
        self.pool.registry.add_tunnel(id, Rc::clone(&tunnel));
        self.pool.responder.respond(exchange);
        // The supervisor may have begun to stop the worker since the last check of all tunnels.
        tunnel.close_if_ending(&self.pool.responder, id);
    }

    /// Keeps the connection to the worker for another request if the response has been read
    /// completely.
    fn keep_connection(&self, connection: WorkerConnection) {
        if let Some(connection) = connection.into_reusable(&self.pool.buffers) {
            self.backend.keep_connection(connection);
        }
    }

    /// Adds a session cookie that names the worker to the response, unless the request already
    /// named the worker.
    fn set_cookie(&self, request: &mut QueuedRequest) {
        if request.sets_cookie {
            let is_https = request.exchange.is_https();
            let (cookie, session) = self.pool.balancer.new_cookie(self.backend, is_https);
            if response_headers::set_cookie(&mut request.exchange, &cookie) {
                request.exchange.update_upstream_log(|upstream| upstream.session = Some(session));
            }
        }
    }

    /// Records that R has processed the head of a request. The request is not counted as finished,
    /// because its body will follow.
    fn on_head_seen(&self) {
        self.backend.forget_request(self.ticket);
        self.guard.take();
        (self.dispatch)(self.pool);
    }

    fn on_response(&self, request: &mut QueuedRequest) {
        let (counters, now) = (self.pool.responder.counters(), Instant::now());
        let response_time = now.duration_since(self.sent_at);
        request
            .exchange
            .update_upstream_log(|upstream| upstream.response_time = Some(response_time));
        // Read before the ticket is released, because the next request with it gets another report.
        if let Some(report) = self.backend.entry.scoreboard.request_report(self.ticket) {
            request.exchange.set_app_times(AppTimes { queue: report.queue, app: report.r });
            if !report.route().is_empty() {
                request.exchange.set_route(report.route());
            }
        }
        if request.is_head_only {
            counters.queue_time.add(self.waited);
        }
        counters.upstream_time.add(response_time);
        counters.request_time.add(now.duration_since(self.received_at));
        self.backend.on_response(self.ticket, self.sent_at, now);
        self.guard.take();
        // R may be free for the next request while this response is forwarded.
        (self.dispatch)(self.pool);
    }

    /// Waits until the supervisor reports that the worker has ended. Returns false if no report
    /// arrives within [`DEATH_REPORT_TIME`].
    async fn wait_for_death_report(&self) -> bool {
        self.backend.suspect();
        let is_dead = || self.backend.entry.availability() == Availability::Dead;
        let reported = async {
            loop {
                let changed = self.pool.balancer.changed.notified();
                if is_dead() {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(DEATH_REPORT_TIME, reported).await.is_ok() || is_dead()
    }
}
