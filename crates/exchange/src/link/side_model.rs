//! A model of how the application waits for its link and for a side queue at the same time. The
//! test visits every order in which the steps of three threads can occur: the application, the
//! server's thread, and the process that fills the side queue. The steps are those of
//! [`Link::wait`](super::Link::wait), [`Link::try_park`](super::Link::try_park),
//! [`Link::push`](super::Link::push) and of the sleep word of the rings; the fences there make the
//! order of the steps the same for all threads.

use std::collections::HashSet;

/// The state of the model: the shared memory, and the next step of each thread.
#[allow(clippy::struct_excessive_bools, reason = "they belong to different threads")]
#[allow(clippy::struct_field_names, reason = "the field of `Link` has this name")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    // Shared.
    app_state: App,
    sleep: Sleep,
    events: u8,
    records: u8,
    /// Whether the counter that the server's thread watches is readable.
    has_signal: bool,
    // The application.
    app: AppStep,
    /// Whether the application waits outside the link in this round.
    parks: bool,
    is_woken: bool,
    /// Whether the application's waker was called. That ends the wait outside the link in which the
    /// application is, or the next one.
    is_due: bool,
    // The server's thread.
    io: IoStep,
    io_left: u8,
    // The other process.
    other: OtherStep,
    other_left: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum App {
    Busy,
    Waiting,
    Parked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Sleep {
    Awake,
    Waiting,
    Polling,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum AppStep {
    Takes,
    Publishes,
    LooksIntoLink,
    Announces,
    LooksIntoSide,
    LooksAgain,
    Sleeps,
    Wakes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum IoStep {
    Pushes,
    Wakes,
    LooksAtSleep,
    ClearsSleep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum OtherStep {
    Sends,
    LooksAtSleep,
    ClearsSleep,
}

/// The rules without which the model must find a lost wake-up.
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// The application looks for events again after it has announced its sleep.
    looks_again: bool,
    /// The server's thread does not mark an application as awake that waits outside the link.
    keeps_polling: bool,
    /// The application does not sleep if the server has marked it as busy meanwhile.
    sees_reset: bool,
}

const ALL: Rules = Rules { looks_again: true, keeps_polling: true, sees_reset: true };

impl State {
    fn new(parks: bool) -> State {
        State {
            app_state: App::Busy,
            sleep: Sleep::Awake,
            events: 0,
            records: 0,
            has_signal: false,
            app: AppStep::Takes,
            parks,
            is_woken: false,
            is_due: false,
            io: IoStep::Pushes,
            io_left: 2,
            other: OtherStep::Sends,
            other_left: 2,
        }
    }

    /// Ends the wait of this round. The next round waits in the other way.
    fn resume(&mut self) {
        self.sleep = Sleep::Awake;
        self.app_state = App::Busy;
        self.parks = !self.parks;
        self.is_woken = false;
        self.app = AppStep::Takes;
    }

    #[allow(clippy::match_same_arms, reason = "the arms are in the order of the steps")]
    fn step_app(mut self, rules: Rules) -> Option<State> {
        match self.app {
            AppStep::Takes if self.events > 0 => self.events -= 1,
            AppStep::Takes if self.records > 0 => self.records -= 1,
            AppStep::Takes => self.app = AppStep::Publishes,
            AppStep::Publishes => {
                self.app_state = if self.parks { App::Parked } else { App::Waiting };
                let next = if self.parks { AppStep::LooksIntoLink } else { AppStep::Announces };
                self.app = next;
            }
            AppStep::LooksIntoLink if self.events > 0 => self.resume(),
            AppStep::LooksIntoLink => self.app = AppStep::Announces,
            AppStep::Announces => {
                self.sleep = if self.parks { Sleep::Polling } else { Sleep::Waiting };
                let next = if rules.looks_again { AppStep::LooksIntoSide } else { AppStep::Sleeps };
                self.app = next;
            }
            AppStep::LooksIntoSide if self.records > 0 => self.resume(),
            AppStep::LooksIntoSide if self.parks => self.app = AppStep::Sleeps,
            AppStep::LooksIntoSide => self.app = AppStep::LooksAgain,
            AppStep::LooksAgain if self.events > 0 => self.resume(),
            AppStep::LooksAgain if rules.sees_reset && self.app_state != App::Waiting => {
                self.resume();
            }
            AppStep::LooksAgain => self.app = AppStep::Sleeps,
            // The system compares the word and sleeps in one step.
            AppStep::Sleeps if !self.parks && self.sleep != Sleep::Waiting => self.resume(),
            AppStep::Sleeps if self.parks && self.is_due => {
                self.is_due = false;
                self.app = AppStep::Wakes;
            }
            AppStep::Sleeps if self.is_woken => self.app = AppStep::Wakes,
            AppStep::Sleeps => return None,
            AppStep::Wakes => self.resume(),
        }
        Some(self)
    }

    fn step_io(mut self, rules: Rules) -> Option<State> {
        match self.io {
            // The signal of the other process calls the waker of the application.
            IoStep::Pushes if self.has_signal => {
                self.has_signal = false;
                self.is_due = true;
            }
            IoStep::Pushes if self.io_left == 0 => return None,
            IoStep::Pushes => {
                self.io_left -= 1;
                self.events += 1;
                match self.app_state {
                    _ if self.events > 1 => {}
                    App::Parked => self.is_due = true,
                    App::Waiting => self.io = IoStep::Wakes,
                    // The server looks again a millisecond later.
                    App::Busy => {}
                }
            }
            IoStep::Wakes if self.app_state == App::Waiting => {
                self.app_state = App::Busy;
                self.io = IoStep::LooksAtSleep;
            }
            IoStep::Wakes => self.io = IoStep::Pushes,
            IoStep::LooksAtSleep if self.sleep == Sleep::Awake => self.io = IoStep::Pushes,
            IoStep::LooksAtSleep => self.io = IoStep::ClearsSleep,
            IoStep::ClearsSleep => {
                if self.sleep == Sleep::Waiting {
                    self.wake_sleeper();
                }
                if self.sleep == Sleep::Waiting || !rules.keeps_polling {
                    self.sleep = Sleep::Awake;
                }
                self.io = IoStep::Pushes;
            }
        }
        Some(self)
    }

    fn step_other(mut self) -> Option<State> {
        match self.other {
            OtherStep::Sends if self.other_left == 0 => return None,
            OtherStep::Sends => {
                self.other_left -= 1;
                self.records += 1;
                self.other = OtherStep::LooksAtSleep;
            }
            OtherStep::LooksAtSleep if self.sleep == Sleep::Awake => {
                self.other = OtherStep::Sends;
            }
            OtherStep::LooksAtSleep => self.other = OtherStep::ClearsSleep,
            OtherStep::ClearsSleep => {
                match std::mem::replace(&mut self.sleep, Sleep::Awake) {
                    Sleep::Awake => {}
                    Sleep::Waiting => self.wake_sleeper(),
                    Sleep::Polling => self.has_signal = true,
                }
                self.other = OtherStep::Sends;
            }
        }
        Some(self)
    }

    /// Wakes an application that sleeps in the link. Otherwise nothing sleeps there.
    fn wake_sleeper(&mut self) {
        if self.app == AppStep::Sleeps && !self.parks {
            self.is_woken = true;
        }
    }

    /// Returns true if the application sleeps although something waits for it.
    fn is_lost(&self) -> bool {
        self.app == AppStep::Sleeps && self.events + self.records > 0
    }
}

/// Visits all orders. Returns the number of states, and a state in which no thread can continue
/// although something waits for the application.
fn explore(rules: Rules) -> (usize, Option<State>) {
    let mut todo = vec![State::new(false), State::new(true)];
    let mut seen: HashSet<State> = todo.iter().copied().collect();
    let mut lost = None;
    while let Some(state) = todo.pop() {
        let next = [state.step_app(rules), state.step_io(rules), state.step_other()];
        if next.iter().all(Option::is_none) && state.is_lost() {
            lost = Some(state);
        }
        todo.extend(next.into_iter().flatten().filter(|next| seen.insert(*next)));
    }
    (seen.len(), lost)
}

#[test]
fn no_order_of_steps_loses_a_wake_up() {
    let (states, lost) = explore(ALL);
    assert_eq!(lost, None);
    assert!(states > 1000, "{states}");
}

#[test]
fn the_model_finds_a_wake_up_that_is_lost_without_each_rule() {
    for rules in [
        Rules { looks_again: false, ..ALL },
        Rules { keeps_polling: false, ..ALL },
        Rules { sees_reset: false, ..ALL },
    ] {
        assert!(explore(rules).1.is_some(), "{rules:?}");
    }
}
