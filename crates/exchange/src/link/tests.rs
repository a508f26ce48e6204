use std::sync::mpsc;

use rookery_fairness::Peer;
use rookery_test_support::Random;

use super::buffer_pool::{KEPT_BUFFER_BYTES, KEPT_BUFFERS, KEPT_BYTES};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::queues::MANY_BYTES;
use super::server_side::WAKE_BATCH;
use super::wake_schedule::{COALESCE, MAX_DELAY};
use super::*;
use crate::command::Command;
use crate::event::Event;
use crate::event::MessageKind;
use crate::payload::Payload;

struct Never;
impl AppWaker for Never {
    fn wake(&self) {}
}

struct Ring(Mutex<mpsc::Sender<()>>);
impl AppWaker for Ring {
    fn wake(&self) {
        let _ = lock(&self.0).send(());
    }
}
impl IoWaker for Ring {
    fn wake(&self) {
        let _ = lock(&self.0).send(());
    }

    fn wake_within(&self, _delay: Duration) -> bool {
        true
    }
}

/// A waker for the tests, which only counts how often the server's timer is set.
#[derive(Default)]
struct Alarms(AtomicU64);
impl IoWaker for Alarms {
    fn wake(&self) {}

    fn wake_within(&self, delay: Duration) -> bool {
        assert!(delay <= MAX_DELAY);
        self.0.fetch_add(1, Ordering::SeqCst);
        true
    }
}

/// A waker for the tests, which counts how often the server is woken, and has no timer.
#[derive(Default)]
struct NoTimer(AtomicU64);
impl IoWaker for NoTimer {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn wake_within(&self, _delay: Duration) -> bool {
        false
    }
}

fn message(bytes: usize) -> Event {
    Event::Message {
        socket: 1,
        listener: 1,
        kind: MessageKind::Binary,
        payload: Payload::Pooled(vec![0; bytes]),
    }
}

#[test]
fn a_full_queue_rejects_requests_and_accepts_closes() {
    let link = Link::new(
        QueueLimits { max_queued_requests: 2, ..QueueLimits::default() },
        Box::new(Never),
    );
    for _ in 0..2 {
        assert!(link.push(Peer::default(), Event::Request(Exchange::new())).is_ok());
    }
    assert!(matches!(
        link.push(Peer::default(), Event::Request(Exchange::new())),
        Err(PushError::Full(_))
    ));
    assert!(
        link.push(
            Peer::default(),
            Event::Closed {
                socket: 1,
                listener: 1,
                code: 1006,
                reason: "".into(),
                is_clean: false
            }
        )
        .is_ok()
    );
    assert!(matches!(link.next(), Some(Event::Request(_))));
    assert!(
        link.push(Peer::default(), Event::Request(Exchange::new())).is_ok(),
        "a place is free again"
    );
}

#[test]
fn a_network_without_a_request_in_a_queue_of_one_place_may_add_one() {
    let limits = QueueLimits { max_queued_requests: 1, ..QueueLimits::default() };
    let link = Link::new(limits, Box::new(Never));
    let push = |network: u64| {
        let is_accepted = link.push(Peer::new(network, network), Event::Request(Exchange::new()));
        is_accepted.is_ok()
    };
    assert_eq!([1, 1, 2, 2, 3].map(push), [true, false, true, false, false]);
    assert!(link.next().is_some());
    assert_eq!([2, 3].map(push), [false, true]);
}

#[test]
fn reading_stops_at_the_limit_and_resumes_at_a_quarter_of_it() {
    let (ring, rung) = mpsc::channel();
    let link = Link::new(
        QueueLimits {
            ws_max_receive_queue_messages: 100,
            ws_max_receive_queue_size: 1000,
            max_queued_requests: 1,
            ..QueueLimits::default()
        },
        Box::new(Never),
    );
    link.set_io_waker(Some(Arc::new(Ring(Mutex::new(ring)))));
    for _ in 0..5 {
        let _ = link.push(Peer::default(), message(200));
    }
    assert!(!link.poll_capacity(Peer::default()));
    for _ in 0..3 {
        link.next();
    }
    assert!(rung.try_recv().is_err(), "400 of 1000 bytes still wait");
    link.next();
    assert!(rung.try_recv().is_ok());
    assert!(link.poll_capacity(Peer::default()));
}

/// Peers send messages in an arbitrary order. A peer that was refused waits until the server is
/// woken, as a WebSocket does.
#[test]
fn a_refused_peer_is_woken_once_its_first_message_is_admitted() {
    let limits = QueueLimits {
        ws_max_receive_queue_messages: 20,
        ws_max_receive_queue_size: 2000,
        ..QueueLimits::default()
    };
    let waker = Arc::new(NoTimer::default());
    let link = Link::new(limits, Box::new(Never));
    link.set_io_waker(Some(Arc::clone(&waker) as Arc<dyn IoWaker>));
    let mut refused = Vec::<Peer>::new();
    let mut random = Random::new(1);
    // Half of the peers belong to one network.
    let peer = |id: u64| Peer::new(id, if id < 30 { 0 } else { id % 12 });
    let mut woken = 0;
    for step in 0..20_000 {
        let is_flood = step / 100 % 2 == 0;
        if random.below(4) < if is_flood { 3 } else { 1 } {
            let peer = peer(random.below(60) as u64);
            if refused.contains(&peer) {
                continue;
            } else if link.poll_capacity(peer) {
                let _ = link.push(peer, message(random.below(150)));
            } else {
                refused.push(peer);
            }
            continue;
        }
        if random.below(10) == 0 {
            let _ = link.push(peer(random.below(60) as u64), Event::Request(Exchange::new()));
        }
        link.next();
        if waker.0.swap(0, Ordering::SeqCst) > 0 {
            woken += 1;
            refused.retain(|peer| !link.poll_capacity(*peer));
        }
        let up = lock(&link.up);
        let load = up.events.load();
        assert!(refused.is_empty() || load.messages * 2 > 20 || load.bytes * 2 > 2000);
        for peer in &refused {
            assert!(!up.events.admits_first_message(*peer, limits.load()), "{peer:?} at {load:?}");
        }
    }
    assert!(woken > 100, "{woken}");
}

#[test]
fn a_busy_application_that_takes_nothing_is_woken_by_the_second_check() {
    let (ring, rung) = mpsc::channel();
    let link = Link::new(QueueLimits::default(), Box::new(Ring(Mutex::new(ring))));
    assert!(matches!(link.push(Peer::default(), message(1)), Ok(WakeUp::Watch)));
    assert!(matches!(link.push(Peer::default(), message(1)), Ok(WakeUp::NotNeeded)));
    let seen = link.taken();
    link.next();
    let seen = link.wake_if_stalled(seen).expect("one waits");
    assert!(rung.try_recv().is_err(), "it was taking");
    assert_eq!(link.wake_if_stalled(seen), Some(seen));
    assert!(rung.try_recv().is_ok());
    link.next();
    assert_eq!(link.wake_if_stalled(seen), None);
}

#[test]
fn a_waiting_application_is_woken_after_a_batch_or_by_many_events() {
    for events in [1, WAKE_BATCH] {
        let link = Link::new(QueueLimits::default(), Box::new(Never));
        let app = {
            let link = Arc::clone(&link);
            std::thread::spawn(move || link.wait(Duration::from_secs(3600)))
        };
        while link.app_state.load(Ordering::SeqCst) != AppState::Waiting as u8 {
            std::thread::yield_now();
        }
        // The application waits from the moment at which it releases the queue's mutex.
        drop(lock(&link.up));
        for event in 0..events {
            let expected = if event == 0 { WakeUp::AfterBatch } else { WakeUp::NotNeeded };
            assert_eq!(link.push(Peer::default(), message(1)).ok(), Some(expected));
        }
        if events == 1 {
            link.wake_waiting();
        }
        assert!(app.join().unwrap());
    }
}

#[test]
fn commands_are_coalesced_until_the_event_queue_is_empty() {
    let (ring, rung) = mpsc::channel();
    let link = Link::new(QueueLimits::default(), Box::new(Never));
    link.set_io_waker(Some(Arc::new(Ring(Mutex::new(ring)))));
    assert!(link.prepare_sleep(false));
    link.send(Command::Abort { socket: 1 });
    assert!(rung.try_recv().is_err(), "it may wait for others");
    std::thread::sleep(COALESCE);
    link.send(Command::Abort { socket: 2 });
    assert!(rung.try_recv().is_ok(), "the first is due");
    assert!(!link.prepare_sleep(false), "commands wait");
    let mut commands = VecDeque::new();
    link.take_commands(&mut commands);
    assert_eq!(commands.len(), 2);
    assert!(link.prepare_sleep(false));
    link.send(Command::Abort { socket: 3 });
    assert!(link.next().is_none());
    assert!(rung.try_recv().is_ok(), "the queue up is empty");
    commands.clear();
    link.take_commands(&mut commands);
    assert!(link.prepare_sleep(true));
    link.send(Command::Abort { socket: 4 });
    assert!(rung.try_recv().is_ok(), "a slow application's response leaves at once");
}

#[test]
fn only_the_first_command_of_a_group_sets_the_timer() {
    let alarms = Arc::new(Alarms::default());
    let link = Link::new(QueueLimits::default(), Box::new(Never));
    link.set_io_waker(Some(Arc::clone(&alarms) as Arc<dyn IoWaker>));
    let mut commands = VecDeque::new();
    // A server that is awake takes the commands by itself.
    link.send(Command::Abort { socket: 1 });
    assert_eq!(alarms.0.load(Ordering::SeqCst), 0);
    let start = Instant::now();
    for _ in 0..1000 {
        commands.clear();
        link.take_commands(&mut commands);
        assert!(link.prepare_sleep(false));
        link.send(Command::Abort { socket: 1 });
        link.send(Command::Abort { socket: 2 });
    }
    let set = alarms.0.load(Ordering::SeqCst);
    let most = 1 + start.elapsed().as_micros() / MAX_DELAY.as_micros();
    assert!((1..=most).contains(&u128::from(set)), "{set} alarms where {most} had room");
    std::thread::sleep(MAX_DELAY);
    commands.clear();
    link.take_commands(&mut commands);
    assert!(link.prepare_sleep(false));
    link.send(Command::Abort { socket: 3 });
    assert_eq!(alarms.0.load(Ordering::SeqCst), set + 1, "the last is over");
}

#[test]
fn without_a_timer_every_command_wakes_a_sleeping_server_at_once() {
    let waker = Arc::new(NoTimer::default());
    let link = Link::new(QueueLimits::default(), Box::new(Never));
    link.set_io_waker(Some(Arc::clone(&waker) as Arc<dyn IoWaker>));
    let mut commands = VecDeque::new();
    for round in 1..=3 {
        assert!(link.prepare_sleep(false));
        link.send(Command::Abort { socket: 1 });
        assert_eq!(waker.0.load(Ordering::SeqCst), round);
        commands.clear();
        link.take_commands(&mut commands);
    }
}

/// Checks that no wake-up is lost: a server and an application that sleep whenever possible pass a
/// request back and forth. A lost wake-up makes the test time out.
#[test]
fn no_wake_up_is_lost() {
    no_wake_up_is_lost_by(|_| {});
}

#[test]
fn no_wake_up_is_lost_with_long_busy_polling() {
    no_wake_up_is_lost_by(Link::enable_long_busy_poll);
}

#[test]
fn long_busy_polling_only_while_events_arrive_in_quick_succession() {
    let link = Link::new(QueueLimits::default(), Box::new(Never));
    let looks_long = || link.was_last_wait_short.load(Ordering::Relaxed);
    let answers_one = || {
        let _ = link.push(Peer::default(), message(1));
        assert!(link.wait(Duration::from_secs(3600)));
        link.next();
    };
    answers_one();
    assert!(!looks_long(), "nobody has asked for it");
    link.enable_long_busy_poll();
    // The event is available at once, so the wait is short unless the test's thread is descheduled.
    while !looks_long() {
        answers_one();
    }
    assert!(!link.wait(Duration::from_millis(1)));
    assert!(!looks_long());
}

fn no_wake_up_is_lost_by(set: impl FnOnce(&Link)) {
    const ROUNDS: u64 = 20_000;
    // Far longer than any wake-up takes, however busy the machine is.
    const LOST: Duration = Duration::from_secs(30);
    let (app_ring, app_rung) = mpsc::channel();
    let (io_ring, io_rung) = mpsc::channel();
    let link = Link::new(QueueLimits::default(), Box::new(Ring(Mutex::new(app_ring))));
    link.set_io_waker(Some(Arc::new(Ring(Mutex::new(io_ring)))));
    set(&link);
    let app = {
        let link = Arc::clone(&link);
        std::thread::spawn(move || {
            for round in 0..ROUNDS {
                let event = loop {
                    if let Some(event) = link.next() {
                        break event;
                    }
                    // The application alternates between both ways of waiting.
                    if round % 2 == 0 {
                        assert!(
                            link.wait(LOST),
                            "a wake-up of the application was lost in round {round}"
                        );
                    } else if link.try_park() {
                        let rung = app_rung.recv_timeout(LOST);
                        assert!(rung.is_ok(), "the application was not rung in round {round}");
                        link.resume();
                    }
                };
                let Event::Request(exchange) = event else { panic!("a request was sent") };
                link.send(Command::Respond(exchange));
            }
            link.flush();
        })
    };
    let mut commands = VecDeque::new();
    let mut exchange = Some(Exchange::new());
    for round in 0..ROUNDS {
        let mut seen = link.taken();
        let mut wake_if_stalled =
            match link.push(Peer::default(), Event::Request(exchange.take().unwrap())).unwrap() {
                WakeUp::Watch => true,
                WakeUp::NotNeeded => false,
                WakeUp::AfterBatch => {
                    link.wake_waiting();
                    false
                }
            };
        while exchange.is_none() {
            link.take_commands(&mut commands);
            for command in commands.drain(..) {
                let Command::Respond(back) = command else { panic!("a response was sent") };
                exchange = Some(back);
            }
            if exchange.is_none() && link.prepare_sleep(round % 3 == 0) {
                if wake_if_stalled {
                    let _ = io_rung.recv_timeout(Duration::from_millis(1));
                    wake_if_stalled =
                        link.wake_if_stalled(seen).map(|taken| seen = taken).is_some();
                } else {
                    let rung = io_rung.recv_timeout(LOST);
                    assert!(rung.is_ok(), "a wake-up of the server was lost in round {round}");
                }
                link.set_awake();
            }
        }
    }
    app.join().unwrap();
}

#[test]
fn a_server_that_never_sleeps_is_woken_once_for_many_bytes() {
    let (ring, rung) = mpsc::channel();
    let link = Link::new(QueueLimits::default(), Box::new(Never));
    link.set_io_waker(Some(Arc::new(Ring(Mutex::new(ring)))));
    let send = |bytes| {
        let payload = Payload::Pooled(vec![0; bytes]);
        link.send(Command::Send { socket: 1, kind: MessageKind::Binary, payload });
    };
    let mut commands = VecDeque::new();
    for _ in 0..2 {
        send(MANY_BYTES);
        assert!(rung.try_recv().is_err(), "it looks by itself");
        send(1);
        send(MANY_BYTES);
        assert_eq!((rung.try_recv(), rung.try_recv()), (Ok(()), Err(mpsc::TryRecvError::Empty)));
        commands.clear();
        link.take_commands(&mut commands);
        assert_eq!(commands.len(), 3);
    }
}

#[test]
fn the_buffer_pool_is_limited_in_bytes() {
    let link = Link::new(QueueLimits::default(), Box::new(Never));
    for _ in 0..KEPT_BUFFERS {
        link.recycle(Vec::with_capacity(KEPT_BUFFER_BYTES));
    }
    let kept = (0..KEPT_BUFFERS).map(|_| link.buffer().capacity()).sum::<usize>();
    assert!(kept > KEPT_BYTES / 2 && kept <= KEPT_BYTES, "{kept}");
    // All buffers have been taken out, so there is capacity for a new one.
    link.recycle(Vec::with_capacity(KEPT_BUFFER_BYTES));
    assert_eq!(link.buffer().capacity(), KEPT_BUFFER_BYTES);
}

#[test]
fn limits_count_the_capacity_of_buffers_not_their_length() {
    let limits = QueueLimits { ws_max_receive_queue_size: 1000, ..QueueLimits::default() };
    let link = Link::new(limits, Box::new(Never));
    let mut payload = Vec::with_capacity(1000);
    payload.push(1);
    let payload = Payload::Pooled(payload);
    let _ = link.push(
        Peer::default(),
        Event::Message { socket: 1, listener: 1, kind: MessageKind::Binary, payload },
    );
    assert!(!link.poll_capacity(Peer::default()));
    link.next();
    assert!(link.poll_capacity(Peer::default()));
}
