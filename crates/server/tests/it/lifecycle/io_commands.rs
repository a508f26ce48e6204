//! Commands to the I/O thread from other threads, whichever way the thread ends.

use std::sync::mpsc::channel;
use std::time::Duration;

use rookery_server::{Config, Limits, ListenerConfig, Server};

use crate::support::{TEST_TIMEOUT, hello};

/// Runs servers while several threads send commands to each, ends them by `end`, and waits for all
/// of these threads.
fn while_asked(rounds: usize, end: impl Fn(Server)) {
    const ASKING: usize = 4;
    for _ in 0..rounds {
        let limits = Limits { stop_timeout: Duration::from_millis(1), ..Limits::default() };
        let server = Server::with_closure_and_echo(Config { limits, ..Config::default() }, hello);
        let listener =
            server.listen_tcp("127.0.0.1:0".parse().unwrap(), ListenerConfig::default()).unwrap();
        let (told, tells) = channel();
        for _ in 0..ASKING {
            let (pulse, told) = (listener.liveness_probe(), told.clone());
            // The threads are not joined, because a thread that waits forever is the failure that
            // the test looks for.
            std::thread::spawn(move || {
                while pulse.connections().is_some() {}
                let _ = told.send(());
            });
        }
        std::thread::sleep(Duration::from_millis(2));
        end(server);
        for _ in 0..ASKING {
            tells.recv_timeout(TEST_TIMEOUT).expect("whoever asks is answered");
        }
        drop(listener);
    }
}

#[test]
fn whoever_asks_for_a_pulse_is_answered_when_the_server_is_dropped() {
    while_asked(20, drop);
}

#[test]
fn whoever_asks_for_a_pulse_is_answered_when_the_thread_breaks() {
    while_asked(5, |server| server.panic_io_thread());
}
