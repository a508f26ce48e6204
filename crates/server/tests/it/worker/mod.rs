//! A server in a worker, which has a control channel to its supervisor and a listener of its own.

mod announcements;

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use rookery_exchange::{Command, Event, Exchange, QueueLimits};
use rookery_server::{Config, Listener, ListenerConfig, Server, Supervision, SupervisorRequest};
use rookery_worker_protocol::rings::RingEnd;
use rookery_worker_protocol::{ControlChannel, Inherited, Message, Received, SharedScoreboard};

use crate::application::{Application, NoWaker};
use crate::support::{Client, TEST_TIMEOUT, echo, wait_until};

/// A worker, and its supervisor's side.
pub(crate) struct Worker {
    // The application is dropped before the server.
    application: Option<Application>,
    pub(crate) listener: Option<Listener>,
    pub(crate) server: Server,
    supervision: Arc<Supervision>,
    pub(crate) control: ControlChannel,
    pub(crate) board: SharedScoreboard,
    pub(crate) asked: Receiver<SupervisorRequest>,
}

impl Worker {
    fn new(
        config: Config,
        handler: impl FnMut(&rookery_exchange::Link, Event) + Send + 'static,
    ) -> Worker {
        let (control, theirs) = ControlChannel::pair().unwrap();
        let (_end, _wakers, handles) = RingEnd::create().unwrap();
        let (board, memory) = SharedScoreboard::create().unwrap();
        let (asks, asked) = mpsc::channel();
        let inherited = Inherited {
            control: ControlChannel::attach(theirs).unwrap(),
            scoreboard: SharedScoreboard::attach(&memory).unwrap(),
            rings: handles.attach().unwrap(),
        };
        let (supervision, _rings) = Supervision::new(inherited, move |request| {
            // The receiver no longer exists when the test is over.
            let _ = asks.send(request);
        });
        let supervision = Arc::new(supervision);
        let server = Server::new(config, Box::new(NoWaker));
        server.watch_supervisor(Arc::clone(&supervision)).unwrap();
        let application = Some(Application::start(&server, handler));
        let mut worker =
            Worker { application, listener: None, server, supervision, control, board, asked };
        worker.listen();
        worker
    }

    pub(crate) fn listen(&mut self) {
        let address = "127.0.0.1:0".parse().unwrap();
        self.listener = Some(self.server.listen_tcp(address, ListenerConfig::default()).unwrap());
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.listener.as_ref().unwrap().local_addr().unwrap())
    }

    /// Receives the next message or end of the control channel.
    pub(crate) fn told(&self) -> Received {
        let mut told = Received::Nothing;
        wait_until("nothing is told", || {
            told = self.control.receive();
            told != Received::Nothing
        });
        told
    }

    fn is_pinged(&self, number: u64) {
        self.control.send(Message::Ping(number)).unwrap();
        assert_eq!(self.told(), Received::Message(Message::Pong(number)));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.application.take());
        drop(self.listener.take());
    }
}

fn whose(exchange: &mut Exchange) {
    exchange.begin_response(200);
}

#[test]
fn a_ping_is_answered_while_the_application_is_busy() {
    let (begun, has_begun) = mpsc::channel();
    let (go_on, goes_on): (Sender<()>, Receiver<()>) = mpsc::channel();
    let worker = Worker::new(
        Config::default(),
        echo(move |exchange| {
            begun.send(()).unwrap();
            goes_on.recv().unwrap();
            exchange.begin_response(204);
        }),
    );
    worker.is_pinged(1);
    let mut clients = [worker.connect(), worker.connect()];
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    has_begun.recv_timeout(TEST_TIMEOUT).unwrap();
    wait_until("both are handed over", || worker.board.read().handed == 2);
    for number in 2..20 {
        worker.is_pinged(number);
    }
    for client in &mut clients {
        go_on.send(()).unwrap();
        assert_eq!(client.response().unwrap().status, 204);
    }
}

#[test]
fn what_the_supervisor_asks_is_heard_with_and_without_listeners() {
    let mut worker = Worker::new(Config::default(), echo(whose));
    let ask = |worker: &Worker, message, expected| {
        worker.control.send(message).unwrap();
        assert_eq!(worker.asked.recv_timeout(TEST_TIMEOUT), Ok(expected));
    };
    ask(&worker, Message::Drain, SupervisorRequest::Drain);
    ask(&worker, Message::Interrupt, SupervisorRequest::Interrupt);
    ask(&worker, Message::Collect, SupervisorRequest::Collect);
    worker.listener.take().unwrap().stop();
    ask(&worker, Message::Stop, SupervisorRequest::Stop);
    worker.is_pinged(7);
    // A message that only a worker may send ends the control channel.
    worker.control.send(Message::Leaving).unwrap();
    worker.is_pinged(8);
    // The end of the channel is reported once.
    let (nobody, _) = ControlChannel::pair().unwrap();
    drop(std::mem::replace(&mut worker.control, nobody));
    assert_eq!(worker.asked.recv_timeout(TEST_TIMEOUT), Ok(SupervisorRequest::Disconnected));
    worker.listen();
    assert!(worker.asked.try_recv().is_err());
}

#[test]
fn who_is_not_attended_any_more_is_not_answered() {
    let worker = Worker::new(Config::default(), echo(whose));
    worker.is_pinged(1);
    worker.server.unwatch_supervisor();
    worker.control.send(Message::Ping(2)).unwrap();
    assert_eq!(worker.connect().get("/").status, 200);
    assert_eq!(worker.control.receive(), Received::Nothing);
    // The thread that has a listener receives the messages that were sent meanwhile.
    worker.server.watch_supervisor(Arc::clone(&worker.supervision)).unwrap();
    assert_eq!(worker.told(), Received::Message(Message::Pong(2)));
}

#[test]
fn the_scoreboard_counts_what_is_handed_over_and_the_open_websockets() {
    // The requests wait until the test continues.
    let held = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let held = Arc::clone(&held);
        let mut echo = echo(whose);
        move |link: &rookery_exchange::Link, event: Event| match event {
            Event::Request(exchange) if !exchange.is_upgrade() => {
                held.lock().unwrap().push(exchange);
            }
            event => echo(link, event),
        }
    };
    let queue = QueueLimits { max_queued_requests: 1, ..QueueLimits::default() };
    let mut worker = Worker::new(Config { queue, ..Config::default() }, handler);
    assert_eq!((worker.board.read().handed, worker.board.read().sessions), (0, 0));
    let mut sockets = [worker.connect(), worker.connect()];
    for socket in &mut sockets {
        assert_eq!(socket.upgrade("/ws").status, 101);
    }
    assert_eq!((worker.board.read().handed, worker.board.read().sessions), (2, 2));
    let [first, second] = sockets;
    drop(first);
    wait_until("one has ended", || worker.board.read().sessions == 1);
    drop(second);
    wait_until("both have ended", || worker.board.read().sessions == 0);

    let mut client = worker.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it is there", || held.lock().unwrap().len() == 1);
    let exchange = held.lock().unwrap().pop().unwrap();
    assert_eq!(worker.board.read().handed, 3);
    // The application takes no requests any more. One request waits, and the other is rejected and
    // not counted.
    drop(worker.application.take());
    let mut waits = worker.connect();
    waits.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it waits", || worker.board.read().handed == 4);
    assert_eq!(worker.connect().get("/").status, 503);
    assert_eq!(worker.board.read().handed, 4);
    worker.server.link().send(Command::Respond(exchange));
}
