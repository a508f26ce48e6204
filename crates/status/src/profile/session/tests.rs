//! Tests of the course of a profile, also in arbitrary orders of what R processes do.

use super::*;

const SECONDS: Duration = Duration::from_secs(10);

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn seen(key: u64, progress: ProfileProgress) -> Seen {
    Seen { key, slot: key as u32 % 3, pid: key as u32, progress, is_full: false }
}

fn outcomes(session: &Session) -> Vec<TargetState> {
    session.targets.iter().map(|target| target.state).collect()
}

#[test]
fn a_profile_begins_and_ends_in_every_process() {
    use ProfileProgress::{Complete, Running, Waiting};
    let mut session = Session::new(SECONDS, None);
    assert_eq!(
        session.turn(at(0), &[seen(1, Waiting), seen(2, Waiting)]),
        [(1, Step::Request), (2, Step::Request)]
    );
    assert_eq!(session.turn(at(50), &[seen(1, Running), seen(2, Waiting)]), [(1, Step::Open)]);
    // Process 1 is replaced by process 3 in a reload.
    assert_eq!(session.turn(at(99), &[seen(2, Waiting), seen(3, Waiting)]), [(3, Step::Request)]);
    assert_eq!(session.turn(at(200), &[seen(2, Waiting), seen(3, Running)]), [(3, Step::Open)]);
    assert_eq!(
        session.turn(SECONDS, &[seen(2, Waiting), seen(3, Running)]),
        [(2, Step::Withdraw), (3, Step::Withdraw)]
    );
    assert!(!session.is_over());
    assert_eq!(session.turn(SECONDS, &[seen(2, Waiting), seen(3, Complete)]), []);
    assert!(session.is_over());
    let expected = [Outcome::ProcessEnded, Outcome::NotBegun, Outcome::Complete];
    assert_eq!(outcomes(&session), expected.map(TargetState::Ended));
}

#[test]
fn a_busy_process_is_not_waited_for_without_a_limit() {
    let mut session = Session::new(SECONDS, None);
    let running = [seen(1, ProfileProgress::Running)];
    session.turn(at(0), &running);
    session.turn(at(50), &running);
    session.stop();
    assert_eq!(session.turn(at(100), &running), [(1, Step::Withdraw)]);
    session.turn(at(99) + GRACE, &running);
    assert!(!session.is_over());
    session.turn(at(100) + GRACE, &running);
    assert!(session.is_over());
    assert_eq!(outcomes(&session), [TargetState::Ended(Outcome::NotEnded)]);
}

#[test]
fn only_the_chosen_worker_is_profiled_and_a_full_file_ends_its_profile() {
    let mut session = Session::new(SECONDS, Some(1));
    let both = [seen(1, ProfileProgress::Waiting), seen(2, ProfileProgress::Waiting)];
    assert_eq!(session.turn(at(0), &both), [(1, Step::Request)]);
    let full = Seen { is_full: true, ..seen(1, ProfileProgress::Running) };
    assert_eq!(session.turn(at(50), &[full]), [(1, Step::Open), (1, Step::Withdraw)]);
    session.turn(at(99), &[seen(1, ProfileProgress::Complete)]);
    assert_eq!(outcomes(&session), [TargetState::Ended(Outcome::Full)]);
}

/// An R process of the model.
struct Model {
    key: u64,
    is_requested: bool,
    progress: ProfileProgress,
    requests: u32,
    opens: u32,
    withdrawals: u32,
}

/// Lets R processes begin, end, fail, replace each other and stay silent in arbitrary orders.
/// Whatever they do, the profile ends in time, and leaves no process with a request.
#[test]
fn in_every_order_the_profile_ends_and_leaves_no_request_behind() {
    use ProfileProgress::{
        Complete, Failed, OtherProfiler, Replaced, Running, Unsupported, Waiting,
    };
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut all = std::collections::HashSet::new();
    for _ in 0..3000 {
        let mut session = Session::new(at(random(400)), (random(4) == 0).then_some(1));
        let mut models: Vec<Model> = Vec::new();
        let (mut next_key, mut now) = (1, 0);
        while !session.is_over() {
            assert!(now <= 500 + GRACE.as_millis() as u64, "the profile does not end");
            for _ in 0..random(4) {
                match random(8) {
                    0 | 1 if models.len() < 4 => {
                        models.push(Model {
                            key: next_key,
                            is_requested: false,
                            progress: Waiting,
                            requests: 0,
                            opens: 0,
                            withdrawals: 0,
                        });
                        next_key += 1;
                    }
                    2 if !models.is_empty() && random(10) == 0 => {
                        let gone = models.swap_remove(random(models.len() as u64) as usize);
                        assert!(gone.requests <= 1 && gone.opens <= 1 && gone.withdrawals <= 1);
                    }
                    // R checks for interrupts.
                    3..=5 if !models.is_empty() => {
                        let at = random(models.len() as u64) as usize;
                        let model = &mut models[at];
                        model.progress = match (model.is_requested, model.progress) {
                            (true, Waiting) => {
                                [Running, Running, Unsupported, OtherProfiler, Failed]
                                    [random(5) as usize]
                            }
                            // Some processes never check for interrupts again.
                            (false, Running) if model.key % 2 == 0 => Running,
                            (false, Running) => [Complete, Replaced][random(2) as usize],
                            (_, progress) => progress,
                        };
                    }
                    6 if random(50) == 0 => session.stop(),
                    _ => {}
                }
            }
            let processes: Vec<Seen> = models
                .iter()
                .map(|model| Seen { is_full: random(30) == 0, ..seen(model.key, model.progress) })
                .collect();
            for (key, step) in session.turn(at(now), &processes) {
                let model = models.iter_mut().find(|model| model.key == key).unwrap();
                match step {
                    Step::Request => {
                        (model.is_requested, model.requests) = (true, model.requests + 1);
                    }
                    Step::Open => model.opens += 1,
                    Step::Withdraw => {
                        (model.is_requested, model.withdrawals) = (false, model.withdrawals + 1);
                    }
                }
            }
            now += 20 + random(60);
        }
        for model in &models {
            assert!(!model.is_requested, "{} is still requested", model.key);
            assert!(model.requests <= 1 && model.opens <= 1);
            assert_eq!(model.withdrawals, model.requests);
        }
        for target in &session.targets {
            let TargetState::Ended(outcome) = target.state else { panic!("{target:?}") };
            all.insert(format!("{outcome:?}"));
        }
    }
    assert_eq!(all.len(), 9, "{all:?}");
}
