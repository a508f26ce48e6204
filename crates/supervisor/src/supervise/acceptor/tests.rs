use std::collections::VecDeque;

use super::*;

/// The test's simulated worker process, which does nothing but accept connections.
#[derive(Debug, Default)]
struct Process {
    epoch: u64,
    accepts: bool,
    hangs: bool,
    refuses: bool,
    /// The commands to the simulated process that it has not read yet.
    commands: VecDeque<Message>,
    /// The acknowledgements that the supervisor has not received yet: the number of each command,
    /// and whether the simulated process accepts connections after it.
    answers: VecDeque<(u64, bool)>,
    /// The time at which the simulated process got the first unread command to stop accepting.
    stop_sent_at: Option<Instant>,
}

impl Process {
    fn read_command(&mut self) {
        if self.hangs {
            return;
        }
        match self.commands.pop_front() {
            Some(Message::Accept(number)) => {
                self.accepts = !self.refuses;
                self.answers.push_back((number, self.accepts));
            }
            Some(Message::StopAccepting(number)) => {
                self.accepts = false;
                if !self.commands.iter().any(|command| matches!(command, Message::StopAccepting(_)))
                {
                    self.stop_sent_at = None;
                }
                self.answers.push_back((number, false));
            }
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
}

/// The test's simulation of the supervisor, the front end and a sequence of workers. Only one
/// process at a time should accept connections.
struct Model {
    acceptor: Acceptor,
    front_end: bool,
    process: Option<Process>,
    epochs: u64,
    wanted: Option<u64>,
    now: Instant,
    /// The time since which neither the front end nor the worker has accepted connections.
    unserved_since: Option<Instant>,
}

impl Model {
    fn new() -> Model {
        Model {
            acceptor: Acceptor::new(),
            front_end: true,
            process: None,
            epochs: 0,
            wanted: None,
            now: Instant::now(),
            unserved_since: None,
        }
    }

    fn carry_out(&mut self, actions: Vec<AcceptorAction>) {
        for action in actions {
            match action {
                AcceptorAction::SetFrontEnd(is_on) => self.front_end = is_on,
                AcceptorAction::Send(epoch, message) => {
                    if matches!(message, Message::Accept(_)) {
                        assert!(!self.front_end, "the front end has not stopped");
                    }
                    let now = self.now;
                    if let Some(process) =
                        self.process.as_mut().filter(|process| process.epoch == epoch)
                    {
                        if matches!(message, Message::StopAccepting(_)) {
                            process.stop_sent_at.get_or_insert(now);
                        }
                        process.commands.push_back(message);
                    }
                }
            }
        }
    }

    /// Simulates one of eleven events, such as the end of the worker. `event` modulo 11 selects the
    /// event.
    fn apply_event(&mut self, event: u32) {
        match event % 11 {
            0 => {
                if self.process.is_none() {
                    self.epochs += 1;
                    self.process = Some(Process { epoch: self.epochs, ..Process::default() });
                }
            }
            // Events 1 and 2: the only worker is ready and should accept. Event 3: a reload begins,
            // or a second worker is added.
            1 | 2 => self.wanted = self.process.as_ref().map(|process| process.epoch),
            3 => self.wanted = None,
            4 | 5 => {
                if let Some(process) = &mut self.process {
                    process.read_command();
                }
            }
            6 => {
                let answer = self
                    .process
                    .as_mut()
                    .and_then(|process| Some((process.epoch, process.answers.pop_front()?)));
                if let Some((epoch, (number, accepts))) = answer {
                    let actions =
                        self.acceptor.on_acknowledgement(epoch, number, accepts, self.now);
                    self.carry_out(actions);
                }
            }
            7 => {
                if let Some(process) = &mut self.process {
                    process.hangs = !process.hangs;
                }
            }
            8 => {
                if let Some(process) = &mut self.process {
                    process.refuses = !process.refuses && !process.accepts;
                }
            }
            9 => {
                if let Some(process) = self.process.take() {
                    self.wanted = None;
                    let actions = self.acceptor.on_worker_exit(process.epoch);
                    self.carry_out(actions);
                }
            }
            _ => self.now += ACKNOWLEDGEMENT_TIMEOUT / 3,
        }
        let actions = self.acceptor.update(self.wanted, self.now);
        self.carry_out(actions);
        self.check();
    }

    fn check(&mut self) {
        let worker = self.process.as_ref().is_some_and(|process| process.accepts);
        if worker && self.front_end {
            // Both processes may accept only after a worker has missed the deadline for its
            // acknowledgement and before it has read the command to stop.
            let stop_sent = self.process.as_ref().and_then(|process| process.stop_sent_at);
            assert!(stop_sent.is_some(), "both accept, and the worker has no command to stop");
        }
        if worker || self.front_end {
            self.unserved_since = None;
        } else {
            let since = *self.unserved_since.get_or_insert(self.now);
            // One timeout for the hand-over, and one for taking back before the hand-over was
            // acknowledged.
            assert!(
                self.now.duration_since(since) <= ACKNOWLEDGEMENT_TIMEOUT * 2,
                "no process accepts: {:?}",
                self.acceptor
            );
        }
        if let (State::Worker { epoch }, Some(process)) = (self.acceptor.state, &self.process) {
            assert_eq!(epoch, process.epoch);
            assert!(process.accepts && !self.front_end);
        }
        assert!(self.acceptor.state != State::FrontEnd || self.front_end);
    }

    /// Lets the simulated processes respond to all commands, and checks that only the process that
    /// should accept connections does so.
    fn settle(&mut self) {
        if let Some(process) = &mut self.process {
            (process.hangs, process.refuses) = (false, false);
        }
        for _ in 0..3 {
            // All messages are delivered, and the hand-over is tried again after a refusal.
            while self
                .process
                .as_ref()
                .is_some_and(|it| !it.commands.is_empty() || !it.answers.is_empty())
            {
                self.apply_event(4);
                self.apply_event(6);
            }
            self.now += RETRY_AFTER;
            let actions = self.acceptor.update(self.wanted, self.now);
            self.carry_out(actions);
        }
        while self
            .process
            .as_ref()
            .is_some_and(|it| !it.commands.is_empty() || !it.answers.is_empty())
        {
            self.apply_event(4);
            self.apply_event(6);
        }
        let accepting =
            self.process.as_ref().filter(|process| process.accepts).map(|process| process.epoch);
        assert_eq!(
            (accepting, self.front_end),
            (self.wanted, self.wanted.is_none()),
            "{:?}",
            self.acceptor
        );
    }
}

#[test]
fn every_order_of_five_events_leaves_one_process_accepting() {
    // Each sequence begins with a ready worker.
    for order in 0..11_u32.pow(5) {
        let mut model = Model::new();
        model.apply_event(0);
        model.apply_event(1);
        let mut rest = order;
        for _ in 0..5 {
            model.apply_event(rest);
            rest /= 11;
        }
        model.settle();
    }
}

#[test]
fn long_orders_of_events_leave_one_process_accepting() {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..2_000 {
        let mut model = Model::new();
        for _ in 0..100 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            model.apply_event((state >> 33) as u32);
        }
        model.settle();
    }
}

#[test]
fn a_worker_accepts_and_stops_accepting_by_command() {
    let mut acceptor = Acceptor::new();
    let now = Instant::now();
    assert_eq!(
        acceptor.update(Some(7), now),
        [AcceptorAction::SetFrontEnd(false), AcceptorAction::Send(7, Message::Accept(1))]
    );
    assert!(!acceptor.is_settled() && acceptor.worker().is_none());
    // Acknowledgements of another worker and of another command are ignored.
    assert_eq!(acceptor.on_acknowledgement(6, 1, true, now), []);
    assert_eq!(acceptor.on_acknowledgement(7, 0, true, now), []);
    assert_eq!(acceptor.on_acknowledgement(7, 1, true, now), []);
    assert_eq!(acceptor.worker(), Some(7));
    assert_eq!(acceptor.update(Some(7), now + RETRY_AFTER), []);
    assert_eq!(acceptor.update(None, now), [AcceptorAction::Send(7, Message::StopAccepting(2))]);
    assert_eq!(acceptor.update(Some(7), now), []);
    assert_eq!(acceptor.on_acknowledgement(7, 2, false, now), [AcceptorAction::SetFrontEnd(true)]);
    assert_eq!(
        acceptor.update(Some(7), now),
        [AcceptorAction::SetFrontEnd(false), AcceptorAction::Send(7, Message::Accept(3))]
    );
}

#[test]
fn a_worker_that_does_not_acknowledge_is_tried_again_later() {
    let mut acceptor = Acceptor::new();
    let now = Instant::now();
    acceptor.update(Some(1), now);
    let late = now + ACKNOWLEDGEMENT_TIMEOUT;
    assert_eq!(
        acceptor.update(Some(1), late),
        [AcceptorAction::Send(1, Message::StopAccepting(2)), AcceptorAction::SetFrontEnd(true)]
    );
    assert_eq!(acceptor.update(Some(1), late), []);
    // The refusal of one worker does not apply to another.
    assert_eq!(acceptor.update(Some(2), late).len(), 2);
    assert_eq!(acceptor.on_worker_exit(2), [AcceptorAction::SetFrontEnd(true)]);
    assert_eq!(acceptor.update(Some(1), late + RETRY_AFTER).len(), 2);
}
