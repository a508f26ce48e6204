//! What the parts of the pool share, and the choice of a worker for the next request.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rookery_exchange::{
    Command, Exchange, IoWaker, StreamId, TerminationState, UpstreamLog, WebSocketId,
};
use rookery_worker_protocol::TicketGuard;

use super::PoolLimits;
use super::attempt;
use super::deferred_body;
use super::error_reply::ErrorReply;
use super::pool_backend::PoolBackend;
use super::queue::{QueuedRequest, RequestQueue};
use super::response_forwarder::ResponseSink;
use super::session_affinity::{Keys, SessionAffinity};
use super::tunnel::Tunnel;
use crate::backend_registry::BackendRegistry;
use crate::pool_counters::PoolCounters;

/// How often it is looked whether an R has become idle, while requests wait: what tells it otherwise is its reply. So a look finds one
/// only where R waits for a promise, or did something of its own; while looks find nothing they become rarer, up to
/// [`LOOK_SELDOM`].
const LOOK_OFTEN: Duration = Duration::from_millis(1);

/// The same where there is no worker that could become so. Each look arms a timer, which wakes the thread.
const LOOK_SELDOM: Duration = Duration::from_millis(16);

/// Parts of `PoolLimits::queue_time` after which the age of given requests is checked, so that a request
/// waits at most an eighth longer than it may.
const PARTS_OF_QUEUE_TIME: u32 = 8;

/// Bounds of that interval: a short queue time must not keep the thread awake, and a long one must not make
/// a timeout late by more than a second.
const WATCH_OFTEN: Duration = Duration::from_millis(10);
const WATCH_SELDOM: Duration = Duration::from_secs(1);

/// Message buffers that are kept.
const KEPT_BUFFERS: usize = 64;

/// The largest of them.
const KEPT_BYTES: usize = 64 << 10;

/// See the module.
pub(super) struct State {
    pub(super) limits: PoolLimits,
    registry: Arc<BackendRegistry>,
    waker: Arc<dyn IoWaker>,
    commands: RefCell<VecDeque<Command>>,
    events: Cell<u64>,
    buffers: RefCell<Vec<Vec<u8>>>,
    keys: Arc<Keys>,
    queue: RefCell<RequestQueue>,
    workers: RefCell<Vec<Rc<PoolBackend>>>,
    choices: Cell<u64>,
    /// Whether there may be requests in the queues whose clients have gone.
    has_departed: Cell<bool>,
    /// How often a request was looked at for where it has to come.
    #[cfg(test)]
    looks: Cell<u64>,
    /// Whether workers have come or gone, or changed, since requests were looked at that had none.
    has_changed: Cell<bool>,
    is_looking: Cell<bool>,
    look_in: Cell<Duration>,
    /// Requests that have been given to workers.
    pub(super) given: Cell<u64>,
    /// Whether anything has gone to a worker since the thread slept.
    pub(super) has_passed_on: Cell<bool>,
    relays: RefCell<HashMap<WebSocketId, Rc<Tunnel>>>,
    outlets: RefCell<HashMap<StreamId, Rc<ResponseSink>>>,
    /// Notified when the workers have changed, and when a request that was given to one has waited too long.
    pub(super) news: tokio::sync::Notify,
    /// Notified when a request has been given to a worker and `is_watch_asleep`.
    has_given: tokio::sync::Notify,
    is_watch_asleep: Cell<bool>,
}

/// Follows the registry, and the age of the requests that workers have been given.
pub(super) fn watch(state: &Rc<State>) {
    let following = Rc::clone(state);
    tokio::task::spawn_local(async move {
        loop {
            following.update_backends();
            let registry = Arc::clone(&following.registry);
            registry.changed.notified().await;
        }
    });
    tokio::task::spawn_local(watch_given(Rc::clone(state)));
}

/// Notifies calls whose requests have waited too long in a worker. Runs no timer while no worker has a
/// request.
async fn watch_given(state: Rc<State>) {
    let pause = (state.limits.queue_time / PARTS_OF_QUEUE_TIME).clamp(WATCH_OFTEN, WATCH_SELDOM);
    loop {
        let has_any = state.workers.borrow().iter().any(|worker| worker.has_unanswered());
        if has_any {
            tokio::time::sleep(pause).await;
        } else {
            state.is_watch_asleep.set(true);
            state.has_given.notified().await;
            state.is_watch_asleep.set(false);
            continue;
        }
        let now = Instant::now();
        let workers = state.workers.borrow();
        if workers.iter().any(|worker| worker.has_overdue(state.limits.queue_time, now)) {
            state.news.notify_waiters();
        }
    }
}

impl State {
    pub(super) fn new(
        registry: Arc<BackendRegistry>,
        limits: PoolLimits,
        keys: Arc<Keys>,
        waker: Arc<dyn IoWaker>,
    ) -> Rc<State> {
        registry.counts.queue_limit.set(limits.queue as u64);
        registry.counts.sessions_limit.set(if limits.sessions == usize::MAX {
            0
        } else {
            limits.sessions as u64
        });
        Rc::new(State {
            limits,
            registry,
            waker,
            commands: RefCell::default(),
            events: Cell::new(0),
            buffers: RefCell::default(),
            keys,
            queue: RefCell::default(),
            workers: RefCell::default(),
            choices: Cell::new(0),
            has_departed: Cell::new(false),
            #[cfg(test)]
            looks: Cell::new(0),
            has_changed: Cell::new(false),
            is_looking: Cell::new(false),
            look_in: Cell::new(LOOK_OFTEN),
            given: Cell::new(0),
            has_passed_on: Cell::new(false),
            relays: RefCell::default(),
            outlets: RefCell::default(),
            news: tokio::sync::Notify::new(),
            has_given: tokio::sync::Notify::new(),
            is_watch_asleep: Cell::new(false),
        })
    }

    /// What is format_count, for whoever asks.
    pub(super) fn counts(&self) -> &PoolCounters {
        &self.registry.counts
    }

    // ---- requests ----

    /// Whether the app is shown the head of a request before its body is taken.
    pub(super) fn sees_head(&self, exchange: &Exchange) -> bool {
        self.workers.borrow().iter().any(|worker| worker.backend.sees_heads())
            && deferred_body::is_shown(exchange)
    }

    /// Takes a request, or its head; it comes back when too many wait.
    pub(super) fn enqueue(self: &Rc<Self>, waiting: QueuedRequest) -> Result<(), Box<Exchange>> {
        let most = self.limits.queue;
        waiting.exchange.set_waiting(true);
        waiting.exchange.update_upstream_log(|upstream| {
            // It may have been here before: then its head was.
            *upstream = UpstreamLog { queued_since: Some(waiting.since), ..UpstreamLog::default() };
        });
        if self.queue.borrow().is_full(most) {
            let departed = self.queue.borrow_mut().take_departed();
            for gone in departed {
                self.respond(gone.exchange);
            }
        }
        let pushed = self.queue.borrow_mut().push(waiting, most);
        if let Err(refused) = pushed {
            self.counts().refused_full.add(1);
            refused.set_waiting(false);
            refused.update_upstream_log(|upstream| {
                upstream.on_terminated(Some(TerminationState::Queue), Instant::now())
            });
            return Err(refused);
        }
        self.assign();
        Ok(())
    }

    /// Takes a request back whose worker has not answered it, and which has `waited` in the queue
    /// before: its time with the worker does not count. Its place is behind the requests that have
    /// waited longer, since timeouts are looked for in front.
    pub(super) fn put_back(self: &Rc<Self>, mut waiting: QueuedRequest, waited: Duration) {
        let now = Instant::now();
        waiting.since = now.checked_sub(waited).unwrap_or(now);
        waiting.exchange.set_waiting(true);
        waiting.exchange.update_upstream_log(|upstream| upstream.on_queued(waiting.since));
        self.queue.borrow_mut().insert(waiting);
        self.assign();
    }

    /// The client of one that waits has gone. It is found at the next look, which is soon, since it waits.
    pub(super) fn has_left(&self) {
        self.has_departed.set(true);
    }

    /// Lets go of those whose clients have gone: nobody is to be refused for them.
    fn drop_departed(&self) {
        if !self.has_departed.replace(false) {
            return;
        }
        let mut departed = self.queue.borrow_mut().take_departed();
        for worker in self.workers.borrow().iter() {
            departed.append(&mut worker.queue.borrow_mut().take_departed());
            worker.queue.borrow().tell(&worker.backend.load.queue);
        }
        for gone in departed {
            self.respond(gone.exchange);
        }
    }

    /// Gives what waits to workers that can begin with it.
    pub(super) fn assign(self: &Rc<Self>) {
        self.hand_out();
        self.queue.borrow().tell(&self.counts().queue);
    }

    fn hand_out(self: &Rc<Self>) {
        self.drop_departed();
        let is_shiny = self.is_shiny();
        let is_sticky = match self.limits.sticky {
            SessionAffinity::Auto => is_shiny,
            SessionAffinity::None => false,
            SessionAffinity::Cookie => true,
        };
        self.look_at_parked();
        if is_sticky {
            self.hand_out_by_name(is_shiny);
        } else {
            self.hand_out_to_any();
        }
        if !self.queue.borrow().is_empty() {
            self.look_again();
        }
    }

    /// Gives each waiting request to any worker that can begin with it.
    fn hand_out_to_any(self: &Rc<Self>) {
        // Those that nobody has a place for, though somebody may have one for what is behind them.
        let mut passed_over = Vec::new();
        let mut has_passed_upgrade = false;
        while let Some(waiting) = self.next() {
            let Some(waiting) = self.give(waiting, has_passed_upgrade) else { continue };
            if waiting.since.elapsed() >= self.limits.queue_time {
                self.refuse_late(waiting);
            } else if self.is_last_to_be_looked_at(&waiting) {
                self.queue.borrow_mut().push_front(waiting);
                break;
            } else {
                has_passed_upgrade |= waiting.exchange.is_upgrade();
                passed_over.push(waiting);
            }
        }
        for waiting in passed_over.into_iter().rev() {
            self.queue.borrow_mut().push_front(waiting);
        }
    }

    /// Returns parked requests to the queue once the workers have changed, so that their cookies are read
    /// again; refuses those that have waited too long.
    fn look_at_parked(&self) {
        let has_changed = self.has_changed.replace(false);
        if !self.queue.borrow().has_parked() {
            return;
        }
        if has_changed {
            self.queue.borrow_mut().unpark();
            return;
        }
        let late = self.queue.borrow_mut().take_overdue_parked(self.limits.queue_time);
        for waiting in late {
            self.refuse_late(waiting);
        }
    }

    fn refuse_late(&self, waiting: QueuedRequest) {
        self.counts().refused_late.add(1);
        self.refuse(waiting, ErrorReply::NoWorker);
    }

    /// Whether nobody has a place for what is behind a request either, when nobody has for it. A handshake is let in by fewer workers than
    /// others are, and so is one that avoids a worker.
    fn is_last_to_be_looked_at(&self, waiting: &QueuedRequest) -> bool {
        waiting.avoids.is_none()
            && (!waiting.exchange.is_upgrade() || self.limits.sessions == usize::MAX)
    }

    /// Gives a request to the worker that can begin with it best; it comes back when there is none. `is_passed_by`: a handshake has come
    /// back before it.
    fn give(self: &Rc<Self>, waiting: QueuedRequest, is_passed_by: bool) -> Option<QueuedRequest> {
        let is_upgrade = waiting.exchange.is_upgrade();
        if is_upgrade && is_passed_by {
            return Some(waiting);
        }
        if is_upgrade && self.is_full_of_sessions() {
            self.counts().refused_sessions.add(1);
            self.refuse(waiting, ErrorReply::Full);
            return None;
        }
        let Some((worker, held)) = self.choose(is_upgrade, false, &waiting) else {
            return Some(waiting);
        };
        self.start(worker, held, waiting);
        None
    }

    /// The next whose client is still there.
    fn next(&self) -> Option<QueuedRequest> {
        loop {
            let waiting = self.queue.borrow_mut().pop()?;
            if !waiting.exchange.is_client_disconnected() {
                return Some(waiting);
            }
            self.respond(waiting.exchange);
        }
    }

    /// Chooses the worker that can begin with a request best, and takes a ticket of it. A request that
    /// `begins` a session goes only where there is room for one more; `counts_sessions` lets their number
    /// decide between workers that are equally free. The worker that the request avoids is chosen only
    /// where there is no other.
    fn choose(
        &self,
        begins: bool,
        counts_sessions: bool,
        waiting: &QueuedRequest,
    ) -> Option<(Rc<PoolBackend>, TicketGuard)> {
        let workers = self.workers.borrow();
        let avoids = waiting.avoids.filter(|epoch| has_other(&workers, *epoch));
        let best = workers
            .iter()
            .filter(|worker| avoids != Some(worker.backend.epoch))
            .filter(|worker| !begins || worker.may_have_another(&self.limits))
            .filter_map(|worker| Some((worker.preference(&self.limits, counts_sessions)?, worker)))
            .min_by(|(a, _), (b, _)| a.cmp(b));
        let worker = best?.1;
        self.choices.set(self.choices.get() + 1);
        worker.chosen.set(self.choices.get());
        let held = worker.begin(waiting.since)?;
        if begins {
            worker.reserve();
        }
        Some((Rc::clone(worker), held))
    }

    /// Gives a request to a worker that has been chosen for it.
    fn start(self: &Rc<Self>, worker: Rc<PoolBackend>, held: TicketGuard, waiting: QueuedRequest) {
        if self.is_watch_asleep.get() {
            self.has_given.notify_one();
        }
        attempt::start(self, worker, held, waiting);
    }

    /// Whether there are workers, and each has as many sessions as it may.
    fn is_full_of_sessions(&self) -> bool {
        let workers = self.workers.borrow();
        let mut ready = workers.iter().filter(|worker| worker.is_taken_for_ready()).peekable();
        ready.peek().is_some() && !ready.any(|worker| worker.may_have_another(&self.limits))
    }

    /// Looks again in a while, since requests wait.
    fn look_again(self: &Rc<Self>) {
        if self.is_looking.replace(true) {
            return;
        }
        let state = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let pause = state.look_in.get();
            tokio::time::sleep(pause).await;
            state.is_looking.set(false);
            let given = state.given.get();
            state.assign();
            let has_found = state.given.get() != given;
            state.look_in.set(if has_found { LOOK_OFTEN } else { LOOK_SELDOM.min(pause * 2) });
        });
    }

    // ---- workers ----

    /// Adds those that came, and lets those go that have ended.
    fn update_backends(self: &Rc<Self>) {
        let backends = self.registry.backends();
        let mut workers = self.workers.borrow_mut();
        workers.retain(|worker| {
            let is_there = backends.iter().any(|backend| backend.epoch == worker.backend.epoch);
            if !is_there {
                worker.let_go();
            }
            // What a worker has not been sent is looked at again: it may have to go another way now.
            while let Some(waiting) = worker.queue.borrow_mut().pop() {
                self.queue.borrow_mut().insert(waiting);
            }
            is_there
        });
        for backend in backends {
            if !workers.iter().any(|worker| worker.backend.epoch == backend.epoch) {
                workers.push(PoolBackend::new(backend));
            }
        }
        drop(workers);
        self.has_changed.set(true);
        self.news.notify_waiters();
        for (id, relay) in self.relays.borrow().iter() {
            relay.look_for_end(self, *id);
        }
        self.assign();
    }

    // ---- the server's side ----

    /// Has the server carry out a command.
    pub(super) fn command(&self, command: Command) {
        let mut commands = self.commands.borrow_mut();
        commands.push_back(command);
        if commands.len() == 1 {
            self.waker.wake();
        }
    }

    /// AdminHandler in place of a worker.
    pub(super) fn refuse(&self, mut waiting: QueuedRequest, refusal: ErrorReply) {
        waiting.exchange.set_waiting(false);
        waiting.exchange.update_upstream_log(|upstream| {
            upstream.on_terminated(refusal.ended(), Instant::now())
        });
        refusal.answer(&mut waiting.exchange);
        self.respond(waiting.exchange);
    }

    /// Gives an exchange back with its reply; where nobody waits for it, it may have none.
    pub(super) fn respond(&self, exchange: Box<Exchange>) {
        if !exchange.is_client_disconnected() {
            self.counts().answered.add(exchange.response().status());
        }
        self.command(Command::Respond(exchange));
    }

    pub(super) fn take_commands(&self, commands: &mut VecDeque<Command>) {
        std::mem::swap(&mut *self.commands.borrow_mut(), commands);
    }

    pub(super) fn has_commands(&self) -> bool {
        !self.commands.borrow().is_empty()
    }

    pub(super) fn count_event(&self) {
        self.events.set(self.events.get() + 1);
    }

    pub(super) fn events(&self) -> u64 {
        self.events.get()
    }

    /// An empty buffer.
    pub(super) fn buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_default()
    }

    pub(super) fn keep_buffer(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < KEPT_BUFFERS && buffer.capacity() <= KEPT_BYTES {
            buffer.clear();
            buffers.push(buffer);
        }
    }

    // ---- WebSockets and streams ----

    pub(super) fn add_relay(&self, socket: WebSocketId, relay: Rc<Tunnel>) {
        self.relays.borrow_mut().insert(socket, relay);
    }

    pub(super) fn relay(&self, socket: WebSocketId) -> Option<Rc<Tunnel>> {
        self.relays.borrow().get(&socket).cloned()
    }

    pub(super) fn take_relay(&self, socket: WebSocketId) -> Option<Rc<Tunnel>> {
        self.relays.borrow_mut().remove(&socket)
    }

    pub(super) fn add_outlet(&self, stream: StreamId, outlet: Rc<ResponseSink>) {
        self.outlets.borrow_mut().insert(stream, outlet);
    }

    pub(super) fn with_outlet(&self, stream: StreamId, body: impl FnOnce(&ResponseSink)) {
        if let Some(outlet) = self.outlets.borrow().get(&stream) {
            body(outlet);
        }
    }

    pub(super) fn take_outlet(&self, stream: StreamId) -> Option<Rc<ResponseSink>> {
        self.outlets.borrow_mut().remove(&stream)
    }
}

/// Returns whether a worker is ready besides the one with this epoch.
fn has_other(workers: &[Rc<PoolBackend>], epoch: u64) -> bool {
    workers.iter().any(|worker| worker.backend.epoch != epoch && worker.is_taken_for_ready())
}

mod session_routing;
#[cfg(test)]
mod tests;
