//! A worker without R, in this process. Its application runs on one thread, takes requests from the
//! rings, and writes the scoreboard, as R does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rookery_exchange::{
    AppTimes, AppWaker, ChunkAdmission, Command, Event, Exchange, Link, Payload, QueueLimits,
    StreamEnd, StreamFlow, StreamOptions, masked,
};
use rookery_server::WorkerRings;
use rookery_supervisor::{Backend, WorkerId};
use rookery_worker_protocol::rings::{RingEnd, RingWakers};
use rookery_worker_protocol::{RState, SharedScoreboard, Ticket, now};

struct NoWaker;

impl AppWaker for NoWaker {
    fn wake(&self) {}
}

/// A gate at which tests hold requests, and the counts of what the application has seen.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    opened: Mutex<bool>,
    changed: Condvar,
    /// The number of requests that the application has begun.
    pub(crate) begun: AtomicUsize,
    /// Whether the application gives requests back, as one that has stopped its server.
    pub(crate) declines: AtomicBool,
    /// The number of chunks that the application has sent.
    pub(crate) chunks: AtomicUsize,
    /// The reasons for which streamed responses have ended.
    pub(crate) streams_ended: Mutex<Vec<StreamEnd>>,
    /// The number of heads that the application has seen before their bodies.
    pub(crate) heads: AtomicUsize,
}

impl Gate {
    pub(crate) fn open(&self) {
        *self.opened.lock().unwrap() = true;
        self.changed.notify_all();
    }

    pub(crate) fn close(&self) {
        *self.opened.lock().unwrap() = false;
    }

    fn pass(&self) {
        let opened = self.opened.lock().unwrap();
        drop(self.changed.wait_while(opened, |opened| !*opened).unwrap());
    }
}

/// Returns the number that stands for the process id of a fake worker.
pub(crate) fn pid_of(slot: u32, epoch: u64) -> u32 {
    1000 * (slot + 1) + epoch as u32
}

/// A worker without R, in this process.
pub(crate) struct FakeWorker {
    pub(crate) backend: Arc<Backend>,
    pub(crate) gate: Arc<Gate>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FakeWorker {
    pub(crate) fn start(slot: u32, epoch: u64) -> FakeWorker {
        let (scoreboard, memory) = SharedScoreboard::create().unwrap();
        let theirs = SharedScoreboard::attach(&memory).unwrap();
        let link = Link::new(QueueLimits::default(), Box::new(NoWaker));
        let (is_over, gate) = (Arc::new(AtomicBool::new(false)), Arc::new(Gate::default()));
        theirs.set_r_state(RState::Idle, now());
        let (end, wakers, handles) = RingEnd::create().unwrap();
        let rings = handles.attach().unwrap();
        let thread = std::thread::spawn({
            let (is_over, gate) = (Arc::clone(&is_over), Arc::clone(&gate));
            move || {
                let mut app = App::new(link, rings, Arc::clone(&is_over));
                while !is_over.load(Ordering::Relaxed) {
                    theirs.set_r_state(RState::Idle, now());
                    app.wait(Duration::from_millis(20));
                    app.listener = (!gate.declines.load(Ordering::Relaxed)).then_some(1);
                    while let Some(event) = app.next() {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        theirs.set_r_state(RState::Busy, now());
                        answer(slot, &mut app, &theirs, &gate, event);
                    }
                }
            }
        });
        let id = WorkerId::new().unwrap();
        let pid = pid_of(slot, epoch);
        let backend = Backend::new((slot, epoch), pid, id, "".into(), scoreboard, (end, wakers));
        FakeWorker { backend, gate, is_over, thread: Some(thread) }
    }

    /// Starts a worker whose application sees heads before bodies, as [`head`] describes.
    pub(crate) fn start_seeing_heads(slot: u32, epoch: u64) -> FakeWorker {
        let worker = FakeWorker::start(slot, epoch);
        worker.backend.set_sees_heads(true);
        worker
    }

    /// Ends the worker as SIGKILL would end a process. Clients get no more of its responses.
    pub(crate) fn die(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.gate.open();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for FakeWorker {
    fn drop(&mut self) {
        self.die();
    }
}

/// The queues of a worker's application: the link to the worker's own server, and the rings.
pub(crate) struct App {
    link: Arc<Link>,
    rings: WorkerRings,
    listener: Option<u32>,
    /// The streamed responses that the application continues when their clients have caught up.
    floods: HashMap<u64, Flood>,
    /// Whether the worker has ended, so that nothing it sends arrives.
    is_over: Arc<AtomicBool>,
}

impl App {
    pub(crate) fn new(
        link: Arc<Link>,
        rings: (RingEnd, RingWakers),
        is_over: Arc<AtomicBool>,
    ) -> App {
        let rings = WorkerRings::new(rings, &link);
        App { link, rings, listener: Some(1), floods: HashMap::new(), is_over }
    }

    pub(crate) fn wait(&mut self, timeout: Duration) {
        self.flush();
        self.link.wait(timeout);
    }

    pub(crate) fn next(&mut self) -> Option<Event> {
        let event = self.link.next();
        event.or_else(|| self.rings.next(self.listener, &self.link).unwrap())
    }

    fn send(&mut self, command: Command) {
        if !WorkerRings::is_from_front_end(command.id()) {
            self.link.send(command);
        } else if !self.is_over.load(Ordering::Relaxed) {
            self.rings.send(command, &self.link);
        }
    }

    fn flush(&mut self) {
        self.rings.flush();
        self.link.flush();
    }
}

/// A streamed response of many chunks.
struct Flood {
    flow: Arc<StreamFlow>,
    sent: u32,
    count: u32,
}

/// The length of a chunk of a [`Flood`]. It is longer than a block of the rings for some chunks.
fn chunk_len(at: u32) -> usize {
    [10, 5_000, 60_000, 100_000][at as usize % 4]
}

/// Returns the body of `/flood/<count>`.
pub(crate) fn flood_body(count: u32) -> Vec<u8> {
    (0..count).flat_map(|at| vec![(at % 251) as u8; chunk_len(at)]).collect()
}

/// Begins a streamed response. The application waits whenever the client has not caught up.
fn begin_flood(app: &mut App, gate: &Gate, mut exchange: Box<Exchange>, is_pulled: bool) {
    let path = String::from_utf8_lossy(exchange.path()).into_owned();
    let count = path.rsplit_once('/').unwrap().1.parse().unwrap();
    let stream = exchange.id();
    exchange.begin_response(200);
    let body = app.link.stream(StreamOptions { is_pulled, ..StreamOptions::default() });
    let flood = Flood { flow: Arc::clone(&body.flow), sent: 0, count };
    exchange.set_response_stream(body);
    app.send(Command::Respond(exchange));
    app.floods.insert(stream, flood);
    if !is_pulled {
        continue_flood(app, gate, stream, false);
    }
}

/// Sends the next chunk if the server asks for it, and otherwise as many as the client takes.
fn continue_flood(app: &mut App, gate: &Gate, stream: u64, is_pulled: bool) {
    while let Some(flood) = app.floods.get_mut(&stream) {
        if flood.sent == flood.count {
            app.floods.remove(&stream);
            app.send(Command::EndStream { stream });
            break;
        }
        let chunk = vec![(flood.sent % 251) as u8; chunk_len(flood.sent)];
        let admission = flood.flow.admit(chunk.len());
        if !matches!(admission, ChunkAdmission::Continue | ChunkAdmission::Pause) {
            app.floods.remove(&stream);
            break;
        }
        flood.sent += 1;
        gate.chunks.fetch_add(1, Ordering::Relaxed);
        let payload = Payload::Pooled(chunk);
        app.send(Command::Chunk { stream, payload, is_pushing: false });
        if is_pulled || admission == ChunkAdmission::Pause {
            break;
        }
    }
    app.flush();
}

/// Shows the request on the scoreboard, as R does.
fn show_task(scoreboard: &SharedScoreboard, exchange: &Exchange) {
    scoreboard.set_task([exchange.method(), b" "].into_iter().chain(masked(exchange.path())));
}

pub(crate) fn answer(
    slot: u32,
    app: &mut App,
    scoreboard: &SharedScoreboard,
    gate: &Gate,
    event: Event,
) {
    match event {
        Event::Head(exchange) => {
            show_task(scoreboard, &exchange);
            scoreboard.count_taken();
            if Ticket::of_word(exchange.ticket()).is_some_and(|ticket| !scoreboard.begin(ticket)) {
                app.send(Command::Respond(exchange));
                return app.flush();
            }
            gate.heads.fetch_add(1, Ordering::Relaxed);
            head(app, scoreboard, gate, exchange);
            app.flush();
        }
        Event::Request(exchange) if exchange.is_client_disconnected() => {
            // R counts a request whose client has disconnected in the same way.
            scoreboard.count_taken();
            app.send(Command::Respond(exchange));
            app.flush();
        }
        Event::Request(mut exchange) => {
            show_task(scoreboard, &exchange);
            // A request whose head the application has seen before counts once.
            let ticket = Ticket::of_word(exchange.ticket());
            if ticket.is_none() || !exchange.has_app_token() {
                scoreboard.count_taken();
            }
            if ticket.is_some_and(|ticket| !scoreboard.begin(ticket)) {
                // R returns a request that the supervisor has withdrawn in the same way.
                app.send(Command::Respond(exchange));
                return app.flush();
            }
            gate.begun.fetch_add(1, Ordering::Relaxed);
            exchange.set_started_at(now());
            if exchange.path().starts_with(b"/flood/") || exchange.path().starts_with(b"/pulled/") {
                let is_pulled = exchange.path().starts_with(b"/pulled/");
                scoreboard.count_done(now());
                begin_flood(app, gate, exchange, is_pulled);
            } else if exchange.path().starts_with(b"/pieces/") {
                pieces(app, scoreboard, gate, exchange);
            } else {
                reply(slot, gate, &mut exchange);
                report(scoreboard, ticket, &mut exchange);
                scoreboard.count_done(now());
                app.send(Command::Respond(exchange));
            }
            app.flush();
        }
        Event::Message { socket, kind, payload, .. } => {
            if payload.as_bytes().starts_with(b"count") {
                let count = payload.as_bytes().len().to_string().into_bytes();
                app.send(Command::Send { socket, kind, payload: Payload::Pooled(count) });
            } else if payload.as_bytes() == b"hold" {
                gate.pass();
            } else if payload.as_bytes() == b"close" {
                app.send(Command::Close { socket, code: 4000, reason: b"bye".to_vec() });
            } else {
                app.send(Command::Send { socket, kind, payload });
            }
            app.flush();
        }
        Event::Writable { stream, .. } => continue_flood(app, gate, stream, false),
        Event::Pull { stream, .. } => continue_flood(app, gate, stream, true),
        Event::StreamEnded { stream, reason, .. } => {
            app.floods.remove(&stream);
            gate.streams_ended.lock().unwrap().push(reason);
        }
        Event::Closed { code, .. } => {
            gate.begun.store(code.into(), Ordering::Relaxed);
        }
        _ => {}
    }
}

/// Reports the times of a request, as R does: fixed times and the route `/users/<id>` for
/// `/users/...`, and otherwise a time of 0.
fn report(scoreboard: &SharedScoreboard, ticket: Option<Ticket>, exchange: &mut Exchange) {
    let (mut queue, mut app) = (Duration::ZERO, Duration::ZERO);
    if exchange.path().starts_with(b"/users/") {
        (queue, app) = (Duration::from_millis(20), Duration::from_secs(3));
        exchange.set_route(b"/users/<id>?token=1");
    }
    exchange.set_app_times(AppTimes { queue, app });
    if let Some(ticket) = ticket {
        let [queue, app] = [queue, app].map(|time| time.as_nanos() as u64);
        scoreboard.report_request(ticket, queue, app, exchange.route());
    }
}

/// Refuses bodies of more than 10 MB and chunked bodies, as Shiny does, and holds requests for
/// `/hold-head` at the gate.
fn head(app: &mut App, scoreboard: &SharedScoreboard, gate: &Gate, mut exchange: Box<Exchange>) {
    if exchange.path() == b"/hold-head" {
        gate.pass();
    }
    let len =
        exchange.header(b"content-length").map(|len| String::from_utf8_lossy(len).parse::<u64>());
    if len.is_some_and(|len| len.unwrap() > 10_000_000)
        || exchange.header(b"transfer-encoding").is_some()
    {
        exchange.begin_response(413);
        exchange.set_response_body(b"larger than the app takes");
        scoreboard.count_done(now());
        app.send(Command::Respond(exchange));
    } else {
        // A request that the supervisor has forwarded (its ticket is not 0) counts when the
        // application responds.
        if exchange.ticket() == 0 {
            scoreboard.count_done(now());
        }
        app.send(Command::ReadBody(exchange));
    }
}

fn reply(slot: u32, gate: &Gate, exchange: &mut Exchange) {
    let path = String::from_utf8(exchange.path().to_vec()).unwrap();
    let (kind, rest) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
    let number = rest.parse().unwrap_or(0);
    let mut status = 200;
    let body = match kind {
        "slot" => slot.to_string().into_bytes(),
        "target" => [exchange.path(), exchange.query()].concat(),
        "echo" => {
            let mut body = vec![0; exchange.body().len() as usize];
            let mut at = 0;
            while at < body.len() {
                at += exchange.body().read_at(at as u64, &mut body[at..]).unwrap();
            }
            body
        }
        "bytes" => vec![b'x'; number],
        "users" => Vec::new(),
        "status" => {
            status = rest.parse().unwrap();
            Vec::new()
        }
        "sleep" => {
            std::thread::sleep(Duration::from_millis(number as u64));
            slot.to_string().into_bytes()
        }
        "hold" => {
            gate.pass();
            slot.to_string().into_bytes()
        }
        "headers" => {
            let mut text = Vec::new();
            for line in exchange.headers() {
                for part in [line.name, b": ", line.value, b"\n"] {
                    text.extend_from_slice(part);
                }
            }
            text
        }
        "client" => {
            let (remote, local, id) = (exchange.remote(), exchange.local(), exchange.request_id());
            let id = String::from_utf8_lossy(id.as_bytes()).into_owned();
            let scheme = if exchange.is_https() { "https" } else { "http" };
            format!("{remote:?} {local:?} {scheme} {id} {:?}", exchange.client()).into_bytes()
        }
        "ws" => {
            exchange.begin_response(101);
            exchange.push_response_header(b"X-Slot", slot.to_string().as_bytes()).unwrap();
            return;
        }
        // The count includes this request.
        "begun" => gate.begun.load(Ordering::Relaxed).to_string().into_bytes(),
        "pid" => std::process::id().to_string().into_bytes(),
        "environment" => std::env::var(rest).unwrap_or_default().into_bytes(),
        "descriptors" => descriptors().into_bytes(),
        "say" => {
            println!("{rest}");
            eprintln!("{rest}, aloud");
            Vec::new()
        }
        "die" => {
            // SAFETY: the call passes no memory. The signal ends this process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            Vec::new()
        }
        "child" => {
            // The worker does not wait for this child process.
            let script = ["-c", "sleep 1000 >/dev/null 2>&1 & echo $!"];
            let said = std::process::Command::new("/bin/sh").args(script).output().unwrap();
            said.stdout.trim_ascii().to_vec()
        }
        "heads" => {
            exchange.begin_response(200);
            exchange.push_response_header(b"X-Long", &vec![b'x'; number]).unwrap();
            return;
        }
        "public" => {
            exchange.begin_response(200);
            exchange.push_response_header(b"Cache-Control", b"max-age=60, public").unwrap();
            return;
        }
        "lines" => {
            exchange.begin_response(200);
            for (name, value) in [
                (&b"Set-Cookie"[..], &b"a=b"[..]),
                (b"X-Mixed", b"c"),
                (b"Set-Cookie", b"d=e"),
                (b"Keep-Alive", b"5"),
            ] {
                exchange.push_response_header(name, value).unwrap();
            }
            return;
        }
        "refuse" => {
            status = 403;
            b"no".to_vec()
        }
        _ => {
            status = 404;
            path.clone().into_bytes()
        }
    };
    exchange.begin_response(status);
    exchange.push_response_header(b"Content-Type", b"text/plain").unwrap();
    exchange.push_response_header(b"X-Slot", slot.to_string().as_bytes()).unwrap();
    exchange.set_response_body(&body);
}

/// Sends a streamed response of the number of chunks that the path contains. The last chunk waits
/// at the gate.
fn pieces(app: &mut App, scoreboard: &SharedScoreboard, gate: &Gate, mut exchange: Box<Exchange>) {
    let count: usize = String::from_utf8_lossy(&exchange.path()[8..]).parse().unwrap();
    let stream = exchange.id();
    exchange.begin_response(200);
    let body = app.link.stream(StreamOptions::default());
    let flow = Arc::clone(&body.flow);
    exchange.set_response_stream(body);
    scoreboard.count_done(now());
    app.send(Command::Respond(exchange));
    for at in 0..count {
        if at + 1 == count {
            app.flush();
            gate.pass();
        }
        let piece = format!("piece {at}\n").into_bytes();
        if flow.admit(piece.len()) == ChunkAdmission::Ended {
            break;
        }
        app.send(Command::Chunk { stream, payload: Payload::Pooled(piece), is_pushing: false });
    }
    app.send(Command::EndStream { stream });
}

/// Returns the open descriptors of a program that this process starts, which are the standard three
/// if nothing else is inherited.
fn descriptors() -> String {
    let output =
        std::process::Command::new("/bin/sh").args(["-c", "ls -l /proc/$$/fd"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}
