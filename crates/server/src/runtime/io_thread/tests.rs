//! The I/O thread serves the application although the task of a client is always ready.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::Poll;
use std::time::Duration;

use rookery_exchange::{Command, Event, Peer, PushError, WakeUp};
use rookery_system::clock;
use rookery_test_support::{TEST_TIMEOUT, wait_until};

use crate::application::application::{Application, MakeApplication};
use crate::connections::client_task::{self, MAX_POLLS, POLLS_OF_CLOCK};
use crate::connections::turns::{FREE_TIME, TIME_OF_NETWORK};
use crate::runtime::server::Server;
use crate::{Config, ListenerConfig};

/// An application beside a client's task that is always ready.
struct Beside {
    /// The number of polls of the client's task.
    polls: Rc<Cell<u32>>,
    /// Gets the number of polls whenever the thread takes the application's commands.
    served: Sender<u32>,
    /// Whether the application panics when it is served.
    is_broken: bool,
    /// Whether the thread may sleep.
    may_sleep: bool,
}

impl Beside {
    /// Returns a function that makes the application, and starts the client's task.
    fn make(served: Sender<u32>, is_broken: bool) -> MakeApplication {
        Arc::new(move |_| {
            let polls = Rc::new(Cell::new(0));
            let counted = Rc::clone(&polls);
            client_task::spawn(
                Some(1),
                poll_fn(move |cx| {
                    counted.set(counted.get() + 1);
                    cx.waker().wake_by_ref();
                    Poll::<()>::Pending
                }),
            );
            Box::new(Beside { polls, served: served.clone(), is_broken, may_sleep: false })
        })
    }
}

impl Application for Beside {
    fn handle_event(&self, _: Peer, _event: Event) -> Result<WakeUp, PushError> {
        Ok(WakeUp::NotNeeded)
    }

    fn take_commands(&self, _commands: &mut VecDeque<Command>) {
        assert!(!self.is_broken, "broken for a test");
        // The test may have ended.
        let _ = self.served.send(self.polls.get());
    }

    fn events_taken(&self) -> u64 {
        0
    }

    fn prepare_sleep(&self, _is_slow: bool) -> bool {
        assert!(self.may_sleep, "the thread must not sleep while a task is ready");
        true
    }
}

fn start(application: MakeApplication) -> (Server, crate::Listener) {
    let server = Server::with_application(Config::default(), application);
    let address = "127.0.0.1:0".parse().unwrap();
    let listener = server.listen_tcp(address, ListenerConfig::default()).unwrap();
    (server, listener)
}

#[test]
fn commands_are_taken_after_a_limited_number_of_polls_of_a_task_that_is_always_ready() {
    let (served, at) = channel();
    let (server, listener) = start(Beside::make(served, false));
    let mut before = 0;
    for _ in 0..100 {
        let polls = at.recv_timeout(TEST_TIMEOUT).expect("the application is served");
        assert!(polls - before <= MAX_POLLS, "{polls} after {before}");
        before = polls;
    }
    // The listener's `stop` waits for the I/O thread, which takes commands first.
    drop(listener);
    drop(server);
}

/// The time of a poll of the [`crowd`].
const POLL: Duration = Duration::from_micros(100);

/// Keeps the thread busy until it has used `time` of the processor.
fn spend(time: Duration) {
    let began = clock::thread_nanoseconds();
    while u128::from(clock::thread_nanoseconds() - began) < time.as_nanos() {}
}

/// Clients' tasks that are always ready: 1,000 of one network, and one of another, which sends the
/// number of polls that the others have had since its own last poll.
fn crowd(polls_between: Sender<u32>) -> MakeApplication {
    Arc::new(move |_| {
        let polls = Rc::new(Cell::new(0));
        let spawn = |network, on_poll: Rc<dyn Fn()>| {
            client_task::spawn(
                Some(network),
                poll_fn(move |cx| {
                    on_poll();
                    cx.waker().wake_by_ref();
                    Poll::<()>::Pending
                }),
            );
        };
        let counted = Rc::clone(&polls);
        let count: Rc<dyn Fn()> = Rc::new(move || {
            counted.set(counted.get() + 1);
            spend(POLL);
        });
        (0..1000).for_each(|_| spawn(1, Rc::clone(&count)));
        let sender = polls_between.clone();
        let send: Rc<dyn Fn()> = Rc::new(move || {
            // The test may have ended.
            let _ = sender.send(polls.take());
        });
        spawn(2, send);
        let (served, _) = channel();
        Box::new(Beside { polls: Rc::default(), served, is_broken: false, may_sleep: false })
    })
}

#[test]
fn a_client_waits_for_few_polls_of_a_network_with_many_connections() {
    let (polls_between, between) = channel();
    let (server, listener) = start(crowd(polls_between));
    let polls = || between.recv_timeout(TEST_TIMEOUT).expect("the client is served");
    let most = |time: Duration| u32::try_from(time.as_micros() / POLL.as_micros()).unwrap();
    let (mut all, mut times, mut many) = (0, 0, 0);
    while all < 2000 {
        let of_others = polls();
        // A round may be free, and end between two times at which the clock is read.
        let free = most(FREE_TIME) + 2 * POLLS_OF_CLOCK;
        let limited = most(TIME_OF_NETWORK);
        assert!(of_others <= free + 2 * limited, "{of_others} polls of the others");
        (all, times) = (all + of_others, times + 1);
        many += u32::from(of_others > limited);
    }
    // Only few rounds are free.
    assert!(many <= times / 4, "{many} of {times}");
    drop(listener);
    drop(server);
}

#[test]
fn a_task_serves_few_requests_at_once_while_others_are_ready() {
    const MANY: usize = 16;
    let (sender, served) = channel();
    let (server, listener) = start(Arc::new(move |_| {
        for network in 0..20 {
            let sender = sender.clone();
            let task = poll_fn(move |cx| {
                let may_serve = |_: &usize| client_task::poll_may_serve(cx).is_ready();
                let requests = (0..MANY).take_while(may_serve).map(|_| spend(POLL / 5)).count();
                // The test may have ended.
                let _ = sender.send(requests);
                cx.waker().wake_by_ref();
                Poll::<()>::Pending
            });
            client_task::spawn(Some(network), task);
        }
        let (served, _) = channel();
        Box::new(Beside { polls: Rc::default(), served, is_broken: false, may_sleep: false })
    }));
    let requests = || served.recv_timeout(TEST_TIMEOUT).expect("the clients are served");
    let at_once: Vec<usize> = (0..2000).map(|_| requests()).collect();
    assert!(at_once.iter().all(|requests| (1..=MANY).contains(requests)), "{at_once:?}");
    // About every other round is free, because no network has taken more than its part.
    let few = at_once.iter().filter(|requests| **requests <= 3).count();
    assert!(few >= 400, "{few} polls of 2,000");
    drop(listener);
    drop(server);
}

#[test]
fn all_tasks_of_a_network_have_their_turns_before_the_thread_sleeps() {
    let (done, ended) = channel();
    let (server, listener) = start(Arc::new(move |_| {
        for _ in 0..200 {
            let done = done.clone();
            let task = poll_fn(move |_| {
                spend(POLL);
                // The test may have ended.
                let _ = done.send(());
                Poll::Ready(())
            });
            client_task::spawn(Some(1), task);
        }
        let (served, _) = channel();
        Box::new(Beside { polls: Rc::default(), served, is_broken: false, may_sleep: true })
    }));
    for task in 0..200 {
        ended.recv_timeout(TEST_TIMEOUT).unwrap_or_else(|_| panic!("only {task} tasks have ended"));
    }
    drop(listener);
    drop(server);
}

#[test]
fn a_panic_between_the_polls_of_a_client_ends_the_thread() {
    let (served, _at) = channel();
    let (server, _listener) = start(Beside::make(served, true));
    wait_until("the failure", || server.link().has_failed());
    assert_eq!(server.link().take_failure().as_deref(), Some("broken for a test"));
}
