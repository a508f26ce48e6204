//! The application's interface to WebSocket clients: opening and closing them, sending messages,
//! and taking events.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rookery_websocket::protocol::handshake::BadRequest;
use tokio::sync::mpsc::{self, UnboundedSender};

use crate::address::Address;
use crate::client_task::ClientTask;
use crate::client_thread::ClientThread;
use crate::events::{Content, Event, EventQueue, Wake};
use crate::settings::Settings;
use crate::state::{ClientState, Command};
use crate::tls::{self, Roots, RootsError, Tls};

/// The maximum number of WebSocket clients of a process, including clients that are closing. Each
/// client has a file descriptor and buffers, so an application that opens clients in a loop gets an
/// error at this number.
pub const MAX_CLIENTS: usize = 1000;

/// The WebSocket clients of an application, and the thread that runs them.
///
/// Dropping this value ends all clients, and sends a close frame for each if this is possible at
/// once. It also joins the thread, which takes at most [`STOP_TIMEOUT`](crate::STOP_TIMEOUT).
pub struct Clients {
    wake: Arc<Wake>,
    /// The event queue of each group of clients, by the number of the group. A group is in the map
    /// while it has a client, or events that can still be taken.
    queues: BTreeMap<u32, Arc<EventQueue>>,
    open: HashMap<u64, ClientHandle>,
    /// The number of WebSocket clients whose task has not ended.
    live_tasks: Arc<AtomicUsize>,
    thread: Option<ClientThread>,
    system_tls: Option<Tls>,
    next: u64,
}

/// The result of sending a message to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendOutcome {
    /// The message was queued and will be sent.
    Queued,
    /// The message was discarded because the send queue is full: its size would exceed
    /// [`Settings::max_queue_size`].
    Full,
    /// The message was discarded because the client's connection is not open.
    Closed,
}

/// The reason why a WebSocket client could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The process already has [`MAX_CLIENTS`] clients.
    TooMany,
    /// The settings contain a subprotocol or a header that HTTP does not allow.
    Request(BadRequest),
    /// The root certificates for TLS cannot be used.
    Roots(RootsError),
    /// The thread that runs the clients could not be started.
    Thread(io::Error),
}

#[derive(Debug)]
struct ClientHandle {
    commands: UnboundedSender<Command>,
    state: Arc<ClientState>,
    max_queue_size: usize,
    is_open: bool,
    is_closing: bool,
}

impl Clients {
    /// Creates an empty set of WebSocket clients. Opening the first client starts the thread.
    pub fn new(wake: Wake) -> Clients {
        Clients {
            wake: Arc::new(wake),
            queues: BTreeMap::new(),
            open: HashMap::new(),
            live_tasks: Arc::default(),
            thread: None,
            system_tls: None,
            next: 1,
        }
    }

    /// Starts to connect a WebSocket client and returns the client's id. `roots` are the root
    /// certificates that it trusts for `wss`.
    ///
    /// # Errors
    /// Returns an [`OpenError`] for problems that are detected without network access. Later
    /// problems are reported as events.
    pub fn open(
        &mut self,
        address: Address,
        settings: Settings,
        roots: &Roots,
    ) -> Result<u64, OpenError> {
        settings.check(&address).map_err(OpenError::Request)?;
        let tls = if address.is_tls {
            Some(self.tls_config(roots).map_err(OpenError::Roots)?)
        } else {
            None
        };
        if self.live_tasks.load(Ordering::Acquire) >= MAX_CLIENTS {
            return Err(OpenError::TooMany);
        }
        if self.thread.as_ref().is_none_or(ClientThread::is_finished) {
            self.thread = Some(ClientThread::start().map_err(OpenError::Thread)?);
        }
        let id = self.next;
        self.next += 1;
        let (commands, receiver) = mpsc::unbounded_channel();
        let state = Arc::new(ClientState::default());
        let max_queue_size = settings.max_queue_size;
        self.drop_unused_queues();
        let events = self.event_queue(settings.group);
        let task = ClientTask::new(
            id,
            address,
            settings,
            tls,
            receiver,
            Arc::clone(&state),
            events,
            Arc::clone(&self.live_tasks),
        );
        if let Some(thread) = &self.thread {
            // If the thread has ended meanwhile, the task is dropped and sends its end event.
            thread.spawn(task);
        }
        self.open.insert(
            id,
            ClientHandle { commands, state, max_queue_size, is_open: false, is_closing: false },
        );
        Ok(id)
    }

    fn event_queue(&mut self, group: u32) -> Arc<EventQueue> {
        let events = self.queues.entry(group);
        Arc::clone(
            events.or_insert_with(|| Arc::new(EventQueue::new(group, Arc::clone(&self.wake)))),
        )
    }

    /// Drops the event queues of groups whose clients have all ended, unless the application can
    /// still take an event.
    fn drop_unused_queues(&mut self) {
        let open = &self.open;
        // The task of each client holds a reference to the queue.
        self.queues.retain(|_, events| {
            Arc::strong_count(events) > 1
                || events.has_event_of(|client| open.contains_key(&client))
        });
    }

    fn tls_config(&mut self, roots: &Roots) -> Result<Tls, RootsError> {
        if let (Roots::System, Some(tls)) = (roots, &self.system_tls) {
            return Ok(Arc::clone(tls));
        }
        let tls = tls::tls_config(roots)?;
        if matches!(roots, Roots::System) {
            self.system_tls = Some(Arc::clone(&tls));
        }
        Ok(tls)
    }

    /// Queues a message for the server if the client's connection is open. Never blocks.
    pub fn send(&mut self, client: u64, content: Content) -> SendOutcome {
        let Some(handle) =
            self.open.get(&client).filter(|handle| handle.is_open && !handle.is_closing)
        else {
            return SendOutcome::Closed;
        };
        let cost = content.cost();
        let queued = handle.state.queued_bytes.load(Ordering::Acquire);
        if queued > 0 && queued.saturating_add(cost) > handle.max_queue_size {
            return SendOutcome::Full;
        }
        handle.state.queued_bytes.fetch_add(cost, Ordering::AcqRel);
        // If the task has ended, its end event is already on the way.
        let _ = handle.commands.send(Command::Send(content));
        SendOutcome::Queued
    }

    /// Closes a client: starts the closing handshake after all messages that are already queued. If
    /// the client is not open yet, cancels the connection attempt. An invalid close code is
    /// replaced by 1000, and the reason is truncated to 123 bytes.
    pub fn close(&mut self, client: u64, code: u16, reason: &str) {
        let Some(handle) = self.open.get_mut(&client).filter(|handle| !handle.is_closing) else {
            return;
        };
        handle.is_closing = true;
        let _ = handle.commands.send(Command::Close { code, reason: reason.to_owned() });
        handle.state.mark_closed();
    }

    /// Closes a client with the close code 1001, and discards its events.
    pub fn abandon(&mut self, client: u64) {
        self.open.remove(&client);
    }

    /// Returns the number of bytes that a client still has to send, including an overhead for each
    /// message.
    pub fn queued_bytes(&self, client: u64) -> usize {
        self.open.get(&client).map_or(0, |handle| handle.state.queued_bytes.load(Ordering::Acquire))
    }

    /// Takes the oldest event of the clients in `group`. Returns `None` if no event is waiting.
    pub fn next_event(&mut self, group: u32) -> Option<Event> {
        let events = self.queues.get(&group)?;
        loop {
            // Checked before the queue, because a task adds its last event before it drops its
            // reference.
            let is_unused = Arc::strong_count(events) == 1;
            let Some(event) = events.pop() else {
                if is_unused {
                    self.queues.remove(&group);
                }
                return None;
            };
            let client = event.client();
            // Events of abandoned clients are discarded.
            let Some(handle) = self.open.get_mut(&client) else { continue };
            // A client that was closed while it was connecting never opens, even if its task
            // completed the handshake before the task received the command.
            let is_closed_early = handle.is_closing && !handle.is_open;
            match &event {
                Event::Opened { .. } if is_closed_early => continue,
                Event::Opened { .. } => handle.is_open = true,
                Event::Message { content, .. } => {
                    handle.state.on_message_taken(content);
                    if is_closed_early {
                        continue;
                    }
                }
                Event::Closed { .. } if is_closed_early => {
                    self.open.remove(&client);
                    let message = "the client was closed before it was open".to_owned();
                    return Some(Event::Failed { client, message, status: None });
                }
                Event::Closed { .. } | Event::Failed { .. } => {
                    self.open.remove(&client);
                }
            }
            return Some(event);
        }
    }

    /// Returns true if no event of any client is waiting for the application.
    pub fn has_no_events(&self) -> bool {
        self.queues.values().all(|events| events.is_empty())
    }

    /// Returns true if an event of a client in `group` is waiting for the application.
    pub fn has_events(&self, group: u32) -> bool {
        self.queues.get(&group).is_some_and(|events| !events.is_empty())
    }

    /// Ends all clients and joins their thread, as dropping [`Clients`] does. The last events of
    /// the clients can still be taken.
    pub fn stop(&mut self) {
        for handle in self.open.values_mut() {
            handle.is_closing = true;
            let _ = handle.commands.send(Command::Close { code: 1001, reason: String::new() });
            handle.state.mark_closed();
        }
        // Joins the thread. A task that has not ended by then is dropped and sends its end event.
        self.thread = None;
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("queues", &self.queues).finish_non_exhaustive()
    }
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        self.state.mark_abandoned();
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Request(bad) => bad.fmt(f),
            OpenError::TooMany => {
                write!(f, "there are already {MAX_CLIENTS} clients: close some of them")
            }
            OpenError::Roots(bad) => bad.fmt(f),
            OpenError::Thread(error) => write!(f, "a thread cannot be started: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn open(clients: &mut Clients, group: u32, port: u16) -> u64 {
        let address = Address::parse(&format!("ws://127.0.0.1:{port}/")).unwrap();
        clients.open(address, Settings { group, ..Settings::default() }, &Roots::System).unwrap()
    }

    #[test]
    fn queues_of_groups_without_clients_and_events_are_dropped() {
        // No server listens on this port.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut clients = Clients::new(Box::new(|_| {}));
        let until = Instant::now() + TIMEOUT;
        // First case: the events are taken.
        for group in 0..20 {
            open(&mut clients, group, port);
            while !matches!(clients.next_event(group), Some(Event::Failed { .. })) {
                assert!(Instant::now() < until);
                std::thread::sleep(Duration::from_millis(1));
            }
            while clients.queues.contains_key(&group) {
                assert!(Instant::now() < until, "{group}");
                assert!(clients.next_event(group).is_none());
            }
        }
        // Second case: the clients are abandoned, and nobody takes their events.
        for group in 100..120 {
            let client = open(&mut clients, group, port);
            clients.abandon(client);
        }
        while clients.live_tasks.load(Ordering::Acquire) > 0 {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
        // An event that can still be taken is kept, even if other clients are opened meanwhile.
        open(&mut clients, 200, port);
        while !clients.has_events(200) || clients.queues.len() > 2 {
            assert!(Instant::now() < until, "{:?}", clients.queues.keys());
            let client = open(&mut clients, 201, port);
            clients.abandon(client);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(matches!(clients.next_event(200), Some(Event::Failed { .. })));
    }
}
