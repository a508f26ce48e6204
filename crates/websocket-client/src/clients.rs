//! The application's side: it opens clients, sends, closes, and takes what happened.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rookery_websocket::protocol::handshake::BadRequest;
use tokio::sync::mpsc::{self, UnboundedSender};

use crate::address::Address;
use crate::events::{Content, Event, Inbox, Shared, Wake};
use crate::running::Opening;
use crate::settings::Settings;
use crate::thread::Thread;
use crate::tls::{self, BadRoots, Roots, Tls};

/// Clients of a process at a time, those that are closing among them: each has a descriptor and buffers, and an application that
/// opens them in a loop is to hear of it.
pub const CLIENTS: usize = 1000;

/// What a client is told. The channel has no bound of its own: what goes in is counted in [`Shared::waiting`], and a close comes once.
#[derive(Debug)]
pub(crate) enum Command {
    Send(Content),
    Close { code: u16, reason: String },
}

/// The WebSocket clients of an application, and their thread.
///
/// Dropping it ends the clients, with a close frame where that can be sent at once, and joins the thread, which takes
/// [`STOP_TIME`](crate::STOP_TIME) at most.
pub struct Clients {
    wake: Arc<Wake>,
    /// Of each group that has a client, or an event that can still be taken.
    inboxes: BTreeMap<u32, Arc<Inbox>>,
    open: HashMap<u64, Handle>,
    /// Clients whose task has not ended.
    live: Arc<AtomicUsize>,
    thread: Option<Thread>,
    system: Option<Tls>,
    next: u64,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// It will be sent.
    Taken,
    /// More waits than [`Settings::queue`] allows: it was not taken.
    Full,
    /// The connection is not open.
    Closed,
}

/// Why there is no client.
#[derive(Debug)]
pub enum OpenError {
    /// There are [`CLIENTS`].
    TooMany,
    /// The request cannot be written: a subprotocol or a header field that HTTP does not allow.
    Request(BadRequest),
    /// The roots cannot be used.
    Roots(BadRoots),
    /// The thread could not be started.
    Thread(io::Error),
}

#[derive(Debug)]
struct Handle {
    commands: UnboundedSender<Command>,
    shared: Arc<Shared>,
    queue: usize,
    is_open: bool,
    is_closing: bool,
}

impl Clients {
    /// No clients, and no thread yet.
    pub fn new(wake: Wake) -> Clients {
        Clients {
            wake: Arc::new(wake),
            inboxes: BTreeMap::new(),
            open: HashMap::new(),
            live: Arc::default(),
            thread: None,
            system: None,
            next: 1,
        }
    }

    /// Begins to connect: the client's number. `roots` are for `wss`.
    ///
    /// # Errors
    /// Only what is known without asking anybody.
    pub fn open(
        &mut self,
        address: Address,
        settings: Settings,
        roots: &Roots,
    ) -> Result<u64, OpenError> {
        settings.check(&address).map_err(OpenError::Request)?;
        let tls =
            if address.is_tls { Some(self.tls(roots).map_err(OpenError::Roots)?) } else { None };
        if self.live.load(Ordering::Acquire) >= CLIENTS {
            return Err(OpenError::TooMany);
        }
        if self.thread.as_ref().is_none_or(Thread::is_over) {
            self.thread = Some(Thread::start().map_err(OpenError::Thread)?);
        }
        let id = self.next;
        self.next += 1;
        let (commands, theirs) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::default());
        let queue = settings.queue;
        self.drop_unused_inboxes();
        let inbox = self.inbox(settings.group);
        let opening = Opening::new(
            id,
            address,
            settings,
            tls,
            theirs,
            Arc::clone(&shared),
            inbox,
            Arc::clone(&self.live),
        );
        if let Some(thread) = &self.thread {
            // Where the thread has ended meanwhile, the order is dropped, and says so as an event.
            thread.order(opening);
        }
        self.open.insert(id, Handle { commands, shared, queue, is_open: false, is_closing: false });
        Ok(id)
    }

    fn inbox(&mut self, group: u32) -> Arc<Inbox> {
        let inbox = self.inboxes.entry(group);
        Arc::clone(inbox.or_insert_with(|| Arc::new(Inbox::new(group, Arc::clone(&self.wake)))))
    }

    /// Drops the inboxes of groups whose last client has ended and whose events have been taken, or
    /// are not wanted.
    fn drop_unused_inboxes(&mut self) {
        let open = &self.open;
        // The task of each client shares its inbox.
        self.inboxes.retain(|_, inbox| {
            Arc::strong_count(inbox) > 1 || inbox.has_event_of(|client| open.contains_key(&client))
        });
    }

    fn tls(&mut self, roots: &Roots) -> Result<Tls, BadRoots> {
        if let (Roots::System, Some(tls)) = (roots, &self.system) {
            return Ok(Arc::clone(tls));
        }
        let tls = tls::trusting(roots)?;
        if matches!(roots, Roots::System) {
            self.system = Some(Arc::clone(&tls));
        }
        Ok(tls)
    }

    /// Sends a message, when the client is open. Never waits.
    pub fn send(&mut self, client: u64, content: Content) -> Given {
        let Some(handle) =
            self.open.get(&client).filter(|handle| handle.is_open && !handle.is_closing)
        else {
            return Given::Closed;
        };
        let cost = content.cost();
        let waiting = handle.shared.waiting.load(Ordering::Acquire);
        if waiting > 0 && waiting.saturating_add(cost) > handle.queue {
            return Given::Full;
        }
        handle.shared.waiting.fetch_add(cost, Ordering::AcqRel);
        // Where its task has ended, that it is closed is on its way.
        let _ = handle.commands.send(Command::Send(content));
        Given::Taken
    }

    /// Starts the closing handshake behind what was sent; before the client is open, gives it up. A code that must not be
    /// sent counts as 1000, and a reason is cut after 123 bytes.
    pub fn close(&mut self, client: u64, code: u16, reason: &str) {
        let Some(handle) = self.open.get_mut(&client).filter(|handle| !handle.is_closing) else {
            return;
        };
        handle.is_closing = true;
        let _ = handle.commands.send(Command::Close { code, reason: reason.to_owned() });
        handle.shared.close();
    }

    /// Lets go of a client: it is closed with 1001, and its events are not wanted.
    pub fn abandon(&mut self, client: u64) {
        self.open.remove(&client);
    }

    /// Bytes that wait to be sent, and some for each message.
    pub fn waiting(&self, client: u64) -> usize {
        self.open.get(&client).map_or(0, |handle| handle.shared.waiting.load(Ordering::Acquire))
    }

    /// Takes what happened next to a client of `group`.
    pub fn event(&mut self, group: u32) -> Option<Event> {
        let inbox = self.inboxes.get(&group)?;
        loop {
            // Looked at first: a task puts its last event in before it lets go.
            let is_unused = Arc::strong_count(inbox) == 1;
            let Some(event) = inbox.pop() else {
                if is_unused {
                    self.inboxes.remove(&group);
                }
                return None;
            };
            let client = event.client();
            // Of one that was abandoned nobody wants to know.
            let Some(handle) = self.open.get_mut(&client) else { continue };
            match &event {
                Event::Opened { .. } => handle.is_open = true,
                Event::Message { content, .. } => handle.shared.took(content),
                Event::Closed { .. } | Event::Failed { .. } => {
                    self.open.remove(&client);
                }
            }
            return Some(event);
        }
    }

    /// Whether there is nothing to take of any group.
    pub fn is_empty(&self) -> bool {
        self.inboxes.values().all(|inbox| inbox.is_empty())
    }

    /// Whether there is something to take of `group`.
    pub fn has_events(&self, group: u32) -> bool {
        self.inboxes.get(&group).is_some_and(|inbox| !inbox.is_empty())
    }

    /// Ends all clients, as dropping does, but their last events can still be taken.
    pub fn stop(&mut self) {
        for handle in self.open.values_mut() {
            handle.is_closing = true;
            let _ = handle.commands.send(Command::Close { code: 1001, reason: String::new() });
            handle.shared.close();
        }
        // Joins it. A task that has not ended by then is dropped, and says so.
        self.thread = None;
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("inboxes", &self.inboxes).finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.abandon();
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Request(bad) => bad.fmt(f),
            OpenError::TooMany => write!(f, "there are {CLIENTS} clients already: close some"),
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

    const PATIENCE: Duration = Duration::from_secs(60);

    fn open(clients: &mut Clients, group: u32, port: u16) -> u64 {
        let address = Address::parse(&format!("ws://127.0.0.1:{port}/")).unwrap();
        clients.open(address, Settings { group, ..Settings::default() }, &Roots::System).unwrap()
    }

    #[test]
    fn a_group_without_clients_and_events_is_forgotten() {
        // Nobody listens there.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut clients = Clients::new(Box::new(|_| {}));
        let until = Instant::now() + PATIENCE;
        // Taken events.
        for group in 0..20 {
            open(&mut clients, group, port);
            while !matches!(clients.event(group), Some(Event::Failed { .. })) {
                assert!(Instant::now() < until);
                std::thread::sleep(Duration::from_millis(1));
            }
            while clients.inboxes.contains_key(&group) {
                assert!(Instant::now() < until, "{group}");
                assert!(clients.event(group).is_none());
            }
        }
        // Events of clients that were abandoned, which nobody takes.
        for group in 100..120 {
            let client = open(&mut clients, group, port);
            clients.abandon(client);
        }
        while clients.live.load(Ordering::Acquire) > 0 {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
        // An event that can still be taken stays, whoever opens a client meanwhile.
        open(&mut clients, 200, port);
        while !clients.has_events(200) || clients.inboxes.len() > 2 {
            assert!(Instant::now() < until, "{:?}", clients.inboxes.keys());
            let client = open(&mut clients, 201, port);
            clients.abandon(client);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(matches!(clients.event(200), Some(Event::Failed { .. })));
    }
}
