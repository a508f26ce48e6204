use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use rookery_test_support::Random;

use super::*;

/// The runtime's queue of ready tasks, which are numbers.
type Ready = Arc<Mutex<VecDeque<usize>>>;

struct Task(usize, Ready);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push_back(self.0);
    }
}

/// A runtime whose tasks belong to networks, and take time whenever they run.
struct Runtime {
    turns: Turns,
    ready: Ready,
    wakers: Vec<Waker>,
    tickets: Vec<Ticket>,
    networks: Vec<u64>,
    /// The number of runs of each task.
    runs: Vec<usize>,
}

impl Runtime {
    fn new(networks: Vec<u64>) -> Runtime {
        let ready = Ready::default();
        let waker = |task| Waker::from(Arc::new(Task(task, Arc::clone(&ready))));
        Runtime {
            turns: Turns::default(),
            wakers: (0..networks.len()).map(waker).collect(),
            ready: Arc::clone(&ready),
            tickets: vec![Ticket::new(); networks.len()],
            runs: vec![0; networks.len()],
            networks,
        }
    }

    /// Polls the tasks that are ready at the beginning of a round. `run` is called for each task
    /// that runs, and returns how long the task runs.
    fn round(&mut self, mut run: impl FnMut(usize) -> Duration) {
        let ready: Vec<_> = self.ready.lock().unwrap().drain(..).collect();
        for task in ready {
            let (network, waker) = (self.networks[task], &self.wakers[task]);
            if self.turns.admit(network, &mut self.tickets[task], waker) {
                self.runs[task] += 1;
                let time = run(task);
                let is_busy = self.ready.lock().unwrap().back() == Some(&task);
                self.tickets[task].set_busy(is_busy);
                self.turns.count(network, &mut self.tickets[task], time);
            }
        }
        self.turns.begin_round();
    }

    fn wake(&self, task: usize) {
        self.wakers[task].wake_by_ref();
    }

    /// Returns the number of rounds, at most 10,000, until a task that becomes ready has run for
    /// `time`. The other tasks that run are always ready, and run as `others` says.
    fn rounds_until_it_runs(&mut self, task: usize, time: Duration, others: Others) -> usize {
        let (before, ready) = (self.runs[task], Arc::clone(&self.ready));
        self.wake(task);
        for rounds in 1..=10_000 {
            self.round(|other| if other == task { time } else { others(&ready, other) });
            if self.runs[task] > before {
                return rounds;
            }
        }
        panic!("task {task} does not run");
    }
}

/// Makes a task ready again, and returns for how long it has run.
type Others = fn(&Ready, usize) -> Duration;

/// The time of a poll with a small request.
const SHORT: Duration = Duration::from_micros(10);

#[test]
fn a_client_waits_for_a_limited_time_of_a_network_with_many_connections() {
    let mut runtime = Runtime::new([vec![1; 1000], vec![2]].concat());
    (0..1001).for_each(|task| runtime.wake(task));
    let (of_crowd, most, ready) = (Cell::new(0), Cell::new(0), Arc::clone(&runtime.ready));
    for _ in 0..500 {
        runtime.round(|task| {
            ready.lock().unwrap().push_back(task);
            if task == 1000 {
                most.set(most.get().max(of_crowd.take()));
            } else {
                of_crowd.set(of_crowd.get() + 1);
            }
            SHORT
        });
    }
    assert_eq!(runtime.runs[1000], 500);
    let most_of_round = TIME_OF_NETWORK.as_micros() / SHORT.as_micros();
    assert!((1..=most_of_round).contains(&most.get()), "{}", most.get());
    // The connections of the crowd take turns, too.
    let of_each = &runtime.runs[..1000];
    assert!(of_each.iter().max().unwrap() - of_each.iter().min().unwrap() <= 1);
}

#[test]
fn a_task_that_takes_little_does_not_wait_for_all_others_of_its_network() {
    let mut runtime = Runtime::new(vec![1; 501]);
    let ready = Arc::clone(&runtime.ready);
    (0..500).for_each(|task| runtime.wake(task));
    let mut most = 0;
    (0..200).for_each(|_| runtime.round(|task| again(&ready, task)));
    for _ in 0..20 {
        (0..10).for_each(|_| runtime.round(|task| again(&ready, task)));
        let rounds = runtime.rounds_until_it_runs(500, SHORT, again);
        most = most.max(rounds);
    }
    assert!(most <= 3, "{most} rounds");
}

#[test]
fn a_new_client_does_not_wait_for_what_many_others_send_at_once() {
    let mut runtime = Runtime::new(vec![1; 501]);
    let ready = Arc::clone(&runtime.ready);
    // All others were idle, and now send requests without end.
    (0..500).for_each(|task| runtime.wake(task));
    runtime.round(|task| busy(&ready, task));
    // A handshake over TLS takes half a millisecond.
    let polls = [50 * SHORT, SHORT, SHORT];
    let rounds: usize =
        polls.map(|time| runtime.rounds_until_it_runs(500, time, busy)).iter().sum();
    // So many rounds have time for one poll of each other task.
    let of_others = 500 * 5 * SHORT;
    assert!(FREE_TIME * rounds as u32 <= of_others + 4 * FREE_TIME, "{rounds} rounds");
}

#[test]
fn a_task_that_changes_its_network_does_not_wait_for_what_the_other_one_has_used() {
    let mut runtime = Runtime::new([vec![1; 100], vec![2, 3]].concat());
    let ready = Arc::clone(&runtime.ready);
    (0..101).for_each(|task| runtime.wake(task));
    // The virtual time of the task that is alone in its network advances 100 times as fast.
    (0..2000).for_each(|_| runtime.round(|task| busy(&ready, task)));
    runtime.rounds_until_it_runs(101, SHORT, busy);
    runtime.turns.change_network(3, 1, &mut runtime.tickets[101]);
    runtime.networks[101] = 1;
    let rounds = runtime.rounds_until_it_runs(101, SHORT, busy);
    assert!(rounds <= 2, "{rounds} rounds");
}

#[test]
fn what_a_task_has_used_before_the_thread_had_time_for_all_counts_no_more() {
    let mut runtime = Runtime::new(vec![1; 501]);
    let ready = Arc::clone(&runtime.ready);
    runtime.wake(500);
    (0..100).for_each(|_| runtime.round(|task| again(&ready, task)));
    // It runs for the last time, with work left, and the thread has nothing to do.
    ready.lock().unwrap().clear();
    while runtime.turns.begin_round() {}
    (0..500).for_each(|task| runtime.wake(task));
    (0..60).for_each(|_| runtime.round(|task| busy(&ready, task)));
    let rounds = runtime.rounds_until_it_runs(500, SHORT, busy);
    assert!(rounds <= 2, "{rounds} rounds");
}

#[test]
fn a_task_that_ends_while_it_waits_is_forgotten() {
    let mut runtime = Runtime::new(vec![1; 1000]);
    let ready = Arc::clone(&runtime.ready);
    (0..1000).for_each(|task| runtime.wake(task));
    runtime.round(|_| SHORT);
    // All that wait end before they are polled again.
    for _ in 0..5 {
        ready.lock().unwrap().clear();
        runtime.turns.begin_round();
    }
    assert!(!runtime.turns.begin_round() && runtime.turns.networks.is_empty());
}

#[test]
fn the_parts_of_a_tasks_work_do_not_get_the_time_of_as_many_tasks() {
    const WHOLES: usize = 50;
    const PARTS: usize = 100;
    let mut runtime = Runtime::new(vec![1; WHOLES * (1 + PARTS) + 1]);
    let ready = Arc::clone(&runtime.ready);
    for part in WHOLES..WHOLES * (1 + PARTS) {
        runtime.tickets[part] = runtime.tickets[part % WHOLES].begin_part();
        runtime.wake(part);
    }
    let honest = WHOLES * (1 + PARTS);
    (0..20).for_each(|_| runtime.round(|task| busy(&ready, task)));
    let rounds = runtime.rounds_until_it_runs(honest, SHORT, busy);
    // All parts together need 50 rounds for one poll of each.
    assert!(rounds <= 5, "{rounds} rounds");
}

/// Makes a task ready again after a poll of the usual length in a limited round.
fn busy(ready: &Ready, task: usize) -> Duration {
    ready.lock().unwrap().push_back(task);
    5 * SHORT
}

/// Makes a task ready again, which takes the time of 16 requests.
fn again(ready: &Ready, task: usize) -> Duration {
    ready.lock().unwrap().push_back(task);
    TIME_OF_NETWORK
}

#[test]
fn new_tasks_without_end_do_not_keep_an_older_one_from_its_turn() {
    let mut runtime = Runtime::new(vec![1; 2001]);
    let ready = Arc::clone(&runtime.ready);
    // It has used much before the others come.
    (0..50).for_each(|_| {
        runtime.wake(2000);
        runtime.round(|_| 4 * SHORT);
    });
    let mut new = 0..2000;
    let (before, mut rounds) = (runtime.runs[2000], 0);
    runtime.wake(2000);
    while runtime.runs[2000] == before {
        new.by_ref().take(20).for_each(|task| runtime.wake(task));
        runtime.round(|task| if task == 2000 { SHORT } else { again(&ready, task) });
        rounds += 1;
    }
    assert!(rounds <= 20, "{rounds} rounds");
}

#[test]
fn a_network_that_is_alone_is_not_limited_for_long() {
    let mut runtime = Runtime::new(vec![1; 1000]);
    (0..1000).for_each(|task| runtime.wake(task));
    let mut rounds = 0;
    while runtime.runs.contains(&0) {
        runtime.round(|_| SHORT);
        rounds += 1;
    }
    assert!(rounds <= 5, "{rounds} rounds");
}

#[test]
fn time_beyond_the_limit_counts_for_the_next_rounds() {
    let mut runtime = Runtime::new(vec![1, 2]);
    let ready = Arc::clone(&runtime.ready);
    (0..2).for_each(|task| runtime.wake(task));
    for _ in 0..1000 {
        runtime.round(|task| {
            ready.lock().unwrap().push_back(task);
            if task == 0 { 10 * TIME_OF_NETWORK } else { SHORT }
        });
    }
    assert_eq!(runtime.runs[1], 1000);
    assert!((90..=110).contains(&runtime.runs[0]), "{} runs", runtime.runs[0]);
}

/// Any order of wake-ups and rounds: each task that was woken runs within a bounded number of
/// rounds, whatever the others do, and a network gets no more time than its turns.
#[test]
fn every_task_that_is_woken_runs_soon() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let tasks = 1 + random.below(120);
        let networks: Vec<u64> = (0..tasks).map(|_| random.below(4) as u64).collect();
        let mut runtime = Runtime::new(networks);
        // The round in which each task was woken that has not run since.
        let mut woken: Vec<Option<usize>> = vec![None; tasks];
        for round in 0..60 {
            for _ in 0..random.below(40) {
                let task = random.below(tasks);
                // A task that waits may be woken by its socket, too.
                runtime.wake(task);
                woken[task].get_or_insert(round);
            }
            let mut taken = [Duration::ZERO; 4];
            let networks = runtime.networks.clone();
            runtime.round(|task| {
                woken[task] = None;
                let time = SHORT * random.below(100) as u32;
                taken[networks[task] as usize] += time;
                time
            });
            let most = FREE_TIME + 100 * SHORT;
            assert!(taken.iter().all(|time| *time <= most), "seed {seed}: {taken:?}");
        }
        for _ in 0..40 {
            runtime.round(|task| {
                woken[task] = None;
                SHORT
            });
        }
        assert!(woken.iter().all(Option::is_none), "seed {seed}: {woken:?}");
        assert!(!runtime.turns.begin_round() && runtime.turns.networks.is_empty());
    }
}
