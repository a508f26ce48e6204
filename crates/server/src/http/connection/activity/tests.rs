//! Randomised tests of a connection's timeouts: after any sequence of events, a client that makes
//! no progress is disconnected.

use std::time::Duration;

use super::*;
use crate::config::Limits;
use crate::connections::model_testing::for_all_sequences;

/// Returns time limits for the tests, with a clock tick of one second.
fn ticks(min_rate: u32) -> TimeLimits {
    TimeLimits::of(&Limits {
        tls_handshake_timeout: Duration::from_secs(10),
        header_timeout: Duration::from_secs(30),
        idle_timeout: Duration::from_secs(20),
        min_body_rate: min_rate,
        min_response_rate: min_rate,
        ..Limits::default()
    })
}

/// The number of clock ticks after which every client without progress must have timed out. It is
/// the longest of the tests' time limits plus the grace period of the minimum rate.
const LATEST: u32 = 64;

const PHASES: [Phase; 8] = [
    Phase::Handshake,
    Phase::Idle,
    Phase::Head,
    Phase::Body,
    Phase::Application,
    Phase::Response,
    Phase::Stream,
    Phase::Flush,
];

struct Model {
    activity: Activity,
    ticks: TimeLimits,
    now: u32,
}

impl Model {
    fn new(min_rate: u32) -> Model {
        Model {
            activity: Activity::new(u32::MAX - 50, true),
            ticks: ticks(min_rate),
            now: u32::MAX - 50,
        }
    }

    fn read(&self, n: usize) {
        self.activity.on_read(&Poll::Ready(Ok(n)), self.now);
    }

    fn written(&self, n: usize) {
        self.activity.on_written(&Poll::Ready(Ok(n)), self.now);
    }

    /// Advances the simulated clock of the test by one tick. Returns true if the client has timed
    /// out.
    fn tick(&mut self) -> bool {
        self.now = self.now.wrapping_add(1);
        self.activity.check_deadlines(&self.ticks, self.now, || Some(1000))
    }

    fn apply(&mut self, operation: usize) {
        let (activity, now) = (&self.activity, self.now);
        match operation {
            0 => self.read(1000),
            1 => self.read(0),
            2 => activity.on_read(&Poll::Pending, now),
            3 => self.written(1000),
            4 => activity.on_written(&Poll::Pending, now),
            5 => activity.on_disk_wait(),
            6 => activity.on_write_drained(),
            7 => activity.on_application_wait(),
            8 => activity.restart_write_deadline(now),
            9 => activity.on_flushed(now),
            10 => activity.begin_lingering(now),
            11 => activity.on_blank_lines(2),
            12 => activity.on_parked(),
            13..=20 => activity.enter(PHASES[operation - 13], now),
            _ => drop(self.tick()),
        }
    }
}

const OPERATIONS: usize = 24;

/// Simulates an event that a client can repeat forever without making progress on a request or
/// response. In the idle phase, `at` selects one of two such events.
fn useless(activity: &Activity, now: u32, at: u32) {
    let read = |n| activity.on_read(&Poll::Ready(Ok(n)), now);
    let pending = || {
        activity.on_read(&Poll::Pending, now);
        activity.on_written(&Poll::Pending, now);
    };
    match activity.phase() {
        // Over HTTP/2, a frame such as PING that the server answers; over HTTP/1.1, a blank line.
        Phase::Idle if at % 2 == 0 => activity.on_written(&Poll::Ready(Ok(17)), now),
        Phase::Idle => activity.on_blank_lines(2),
        // Any number of bytes of a head.
        Phase::Head => read(1 << 20),
        Phase::Handshake => {
            read(1);
            activity.on_written(&Poll::Ready(Ok(100)), now);
        }
        // An empty DATA frame, and a write that is not part of a response.
        Phase::Body => {
            read(0);
            activity.on_written(&Poll::Ready(Ok(100)), now);
            pending();
        }
        // The client sends the next request and does not read the response.
        Phase::Response | Phase::Stream | Phase::Flush => {
            read(1000);
            pending();
        }
        Phase::Application => {}
    }
}

#[test]
fn client_without_progress_times_out_after_any_events() {
    for rate in [0, 512] {
        for_all_sequences(OPERATIONS, 30, |operations| {
            let mut model = Model::new(rate);
            for operation in operations {
                model.apply(*operation);
            }
            let phase = model.activity.phase();
            if phase == Phase::Application {
                return Ok(());
            }
            for at in 0..LATEST {
                useless(&model.activity, model.now, at);
                if model.tick() {
                    return Ok(());
                }
            }
            Err(format!("not late in {phase:?} with a rate of {rate}"))
        });
    }
}

#[test]
fn bytes_without_a_request_do_not_extend_the_idle_timeout() {
    let first_late = |between: &dyn Fn(&Model, u32)| {
        let mut model = Model::new(512);
        model.activity.enter(Phase::Idle, model.now);
        (1..LATEST).find(|at| {
            between(&model, *at);
            let slowness = model.activity.slowness(&model.ticks, model.now);
            assert_eq!(slowness, Some(at - 1).filter(|ticks| *ticks > 1), "it counts for eviction");
            model.tick()
        })
    };
    assert_eq!(first_late(&|_, _| ()), Some(21));
    assert_eq!(first_late(&|model, _| model.written(17)), Some(21));
    assert_eq!(first_late(&|model, _| model.activity.on_blank_lines(2)), Some(21));
    assert_eq!(first_late(&|model, at| useless(&model.activity, model.now, at)), Some(21));
}

#[test]
fn next_request_does_not_extend_the_write_deadline() {
    let mut model = Model::new(0);
    model.activity.enter(Phase::Response, model.now);
    model.activity.on_written(&Poll::Pending, model.now);
    // The first tick counts the bytes in the socket buffer as written, but the client has not read
    // them.
    model.tick();
    let late = (2..LATEST).find(|_| {
        model.read(1);
        model.tick()
    });
    assert!(late.is_some_and(|at| at <= 23), "{late:?}");
    // Without a minimum rate, one byte per tick is enough progress.
    let mut model = Model::new(0);
    model.activity.enter(Phase::Response, model.now);
    for _ in 0..LATEST {
        model.written(1001);
        model.activity.on_written(&Poll::Pending, model.now);
        assert!(!model.tick());
    }
}

#[test]
fn a_client_that_empties_the_send_buffer_with_pauses_is_not_stalled() {
    let mut model = Model::new(0);
    model.activity.enter(Phase::Response, model.now);
    model.written(100_000);
    model.activity.on_written(&Poll::Pending, model.now);
    // The system accepts more bytes only when a large part of the buffer is free, so the server
    // writes nothing meanwhile.
    for tick in 0..LATEST {
        model.now = model.now.wrapping_add(1);
        let unsent = 100_000 - tick / 10 * 1000;
        let is_late = model.activity.check_deadlines(&model.ticks, model.now, || Some(unsent));
        assert!(!is_late, "after {tick} seconds");
    }
}

#[test]
fn an_eviction_costs_what_the_client_loses() {
    use EvictionCost::{Body, Head, Idle, Served, Session, UnreadResponse, WaitingRequest};
    let activity = Model::new(512).activity;
    let cost = |phase, is_blocked: bool, is_waiting| {
        activity.enter(phase, 0);
        let written = if is_blocked { Poll::Pending } else { Poll::Ready(Ok(1)) };
        activity.on_written(&written, 0);
        activity.eviction_cost(is_waiting)
    };
    for (phase, while_read, while_blocked) in [
        (Phase::Handshake, Head, Head),
        (Phase::Idle, Idle, Idle),
        (Phase::Head, Head, Head),
        (Phase::Body, Body, Body),
        (Phase::Application, Served, Served),
        (Phase::Response, Served, UnreadResponse),
        (Phase::Stream, Session, Session),
        (Phase::Flush, Served, UnreadResponse),
    ] {
        assert_eq!(cost(phase, false, false), while_read, "{phase:?}");
        assert_eq!(cost(phase, true, false), while_blocked, "{phase:?}");
    }
    assert_eq!(cost(Phase::Application, false, true), WaitingRequest);
}
