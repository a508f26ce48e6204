//! A model of the deadlines: whatever order things happened in, a peer that does nothing useful from then on is late in time.

use std::time::Duration;

use super::*;
use crate::config::Limits;
use crate::connections::model_testing::for_all_sequences;

/// A tick a second.
fn ticks(reply_rate: u32) -> TimeLimits {
    TimeLimits::of(&Limits {
        handshake_time: Duration::from_secs(10),
        head_time: Duration::from_secs(30),
        idle_time: Duration::from_secs(20),
        body_rate: reply_rate,
        reply_rate,
        ..Limits::default()
    })
}

/// Ticks by which whoever stands still is late: the longest of the limits above, with the grace of a rate.
const LATEST: u32 = 64;

const PHASES: [Phase; 8] = [
    Phase::Handshake,
    Phase::Idle,
    Phase::Head,
    Phase::Body,
    Phase::Application,
    Phase::Reply,
    Phase::Stream,
    Phase::Flush,
];

struct Model {
    standing: Standing,
    ticks: TimeLimits,
    now: u32,
}

impl Model {
    fn new(reply_rate: u32) -> Model {
        Model {
            standing: Standing::new(u32::MAX - 50, true),
            ticks: ticks(reply_rate),
            now: u32::MAX - 50,
        }
    }

    fn read(&self, n: usize) {
        self.standing.on_read(&Poll::Ready(Ok(n)), self.now);
    }

    fn written(&self, n: usize) {
        self.standing.on_written(&Poll::Ready(Ok(n)), self.now);
    }

    /// A tick; says whether the peer is late.
    fn tick(&mut self) -> bool {
        self.now = self.now.wrapping_add(1);
        self.standing.is_late(&self.ticks, self.now, || Some(1000))
    }

    fn does(&mut self, operation: usize) {
        let (standing, now) = (&self.standing, self.now);
        match operation {
            0 => self.read(1000),
            1 => self.read(0),
            2 => standing.on_read(&Poll::Pending, now),
            3 => self.written(1000),
            4 => standing.on_written(&Poll::Pending, now),
            5 => standing.on_disk_wait(),
            6 => standing.on_left(),
            7 => standing.on_application_wait(),
            8 => standing.excuse(now),
            9 => standing.on_flushed(now),
            10 => standing.linger(now),
            11 => standing.on_blank_lines(2),
            12 => standing.on_parked(),
            13..=20 => standing.enter(PHASES[operation - 13], now),
            _ => drop(self.tick()),
        }
    }
}

const KINDS: usize = 24;

/// What a peer can do for ever without sending a request, taking a part of a reply, or getting on with either.
fn useless(standing: &Standing, now: u32, at: u32) {
    let read = |n| standing.on_read(&Poll::Ready(Ok(n)), now);
    let pending = || {
        standing.on_read(&Poll::Pending, now);
        standing.on_written(&Poll::Pending, now);
    };
    match standing.phase() {
        // Over HTTP/2 a frame that is answered, such as PING; over HTTP/1 a blank line.
        Phase::Idle if at % 2 == 0 => standing.on_written(&Poll::Ready(Ok(17)), now),
        Phase::Idle => standing.on_blank_lines(2),
        // Bytes of a head, however many.
        Phase::Head => read(1 << 20),
        Phase::Handshake => {
            read(1);
            standing.on_written(&Poll::Ready(Ok(100)), now);
        }
        // A frame of DATA that is empty, and what was said of the body.
        Phase::Body => {
            read(0);
            standing.on_written(&Poll::Ready(Ok(100)), now);
            pending();
        }
        // The next request comes, and the reply is not read.
        Phase::Reply | Phase::Stream | Phase::Flush => {
            read(1000);
            pending();
        }
        Phase::Application => {}
    }
}

#[test]
fn whoever_does_nothing_useful_is_late_whatever_happened_before() {
    for rate in [0, 512] {
        for_all_sequences(KINDS, 30, |operations| {
            let mut model = Model::new(rate);
            for operation in operations {
                model.does(*operation);
            }
            let phase = model.standing.phase();
            if phase == Phase::Application {
                return Ok(());
            }
            for at in 0..LATEST {
                useless(&model.standing, model.now, at);
                if model.tick() {
                    return Ok(());
                }
            }
            Err(format!("not late in {phase:?} with a rate of {rate}"))
        });
    }
}

#[test]
fn who_is_idle_is_late_at_the_same_tick_whatever_it_sends() {
    let first_late = |between: &dyn Fn(&Model, u32)| {
        let mut model = Model::new(512);
        model.standing.enter(Phase::Idle, model.now);
        (1..LATEST).find(|at| {
            between(&model, *at);
            let slowness = model.standing.slowness(&model.ticks, model.now);
            assert_eq!(slowness, Some(at - 1).filter(|ticks| *ticks > 1), "it counts for eviction");
            model.tick()
        })
    };
    assert_eq!(first_late(&|_, _| ()), Some(21));
    assert_eq!(first_late(&|model, _| model.written(17)), Some(21));
    assert_eq!(first_late(&|model, _| model.standing.on_blank_lines(2)), Some(21));
    assert_eq!(first_late(&|model, at| useless(&model.standing, model.now, at)), Some(21));
}

#[test]
fn reading_the_next_request_does_not_excuse_a_reply_that_is_not_taken() {
    let mut model = Model::new(0);
    model.standing.enter(Phase::Reply, model.now);
    model.standing.on_written(&Poll::Pending, model.now);
    // What lies in the socket at the first look has been written, and not taken.
    model.tick();
    let late = (2..LATEST).find(|_| {
        model.read(1);
        model.tick()
    });
    assert!(late.is_some_and(|at| at <= 23), "{late:?}");
    // One that takes a byte a tick is not late without a rate.
    let mut model = Model::new(0);
    model.standing.enter(Phase::Reply, model.now);
    for _ in 0..LATEST {
        model.written(1001);
        model.standing.on_written(&Poll::Pending, model.now);
        assert!(!model.tick());
    }
}
