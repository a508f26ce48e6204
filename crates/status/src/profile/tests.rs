//! Tests of profiles with R processes that the test simulates.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::Ordering::Acquire;

use rookery_worker_protocol::{ProfileProgress, SharedScoreboard};

use super::*;

struct Game {
    folder: tempfile::TempDir,
    processes: Arc<Mutex<Vec<ProfiledProcess>>>,
    profiler: Profiler,
    boards: Vec<Arc<SharedScoreboard>>,
}

impl Game {
    fn new(count: u32) -> Game {
        let folder = tempfile::tempdir().unwrap();
        let processes: Arc<Mutex<Vec<ProfiledProcess>>> = Arc::default();
        let board = |_| Arc::new(SharedScoreboard::private());
        let boards: Vec<_> = (0..count).map(board).collect();
        for (slot, board) in (0..).zip(&boards) {
            let own = folder.path().join(slot.to_string());
            fs::create_dir(&own).unwrap();
            processes.lock().unwrap().push(ProfiledProcess {
                key: u64::from(slot) + 10,
                slot,
                pid: slot + 100,
                scoreboard: Arc::clone(board) as Arc<_>,
                folder: own,
            });
        }
        Game { folder, processes, profiler: Profiler::new(), boards }
    }

    fn start(&self, query: &str) -> Result<u32, StartError> {
        let options = ProfileOptions::of_query(query.as_bytes()).unwrap();
        let processes = Arc::clone(&self.processes);
        self.profiler.start(Box::new(move || processes.lock().unwrap().clone()), options)
    }

    /// Waits until a profile is requested from a process, and begins it.
    fn begin(&self, slot: usize, samples: &str) -> u32 {
        self.begin_open(slot, samples).0
    }

    /// Does the same, and returns the file as well, which R keeps open.
    fn begin_open(&self, slot: usize, samples: &str) -> (u32, File) {
        let word = self.boards[slot].profile_word();
        wait(|| ProfileRequest::of_word(word.load(Acquire)).is_some());
        let request = ProfileRequest::of_word(word.load(Acquire)).unwrap();
        let path = self.folder.path().join(slot.to_string()).join(profile_file(request.number));
        let interval = request.interval_us();
        let mut file = File::create(&path).unwrap();
        write!(file, "line profiling: sample.interval={interval}\n{samples}").unwrap();
        self.boards[slot].set_profile_progress(request.number, ProfileProgress::Running);
        wait(|| !path.exists());
        (request.number, file)
    }

    /// Waits until the profile is to be ended in a process, and ends it.
    fn end(&self, slot: usize, number: u32) {
        let word = self.boards[slot].profile_word();
        wait(|| word.load(Acquire) == 0);
        self.boards[slot].set_profile_progress(number, ProfileProgress::Complete);
    }

    fn finished(&self) -> Value {
        wait(|| self.state() == "finished");
        self.profiler.json(None).unwrap()
    }

    fn state(&self) -> Value {
        self.profiler.json(None).unwrap()["state"].clone()
    }
}

fn wait(is: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < until, "nothing has happened");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_files_of_several_processes_are_joined_and_removed() {
    let game = Game::new(2);
    assert_eq!(game.state(), "none");
    game.start("?seconds=1").unwrap();
    assert_eq!(game.start(""), Err(StartError::Busy));
    let number = game.begin(0, "#File 1: a.R\n\"f\" 1#2 \"GET:/a\" \n");
    game.begin(1, "#File 1: b.R\n\"g\" 1#3 \"GET:/b\" \n\"cut");
    game.end(0, number);
    game.end(1, number);
    let json = game.finished();
    assert_eq!(json["summary"]["samples"], 2);
    assert_eq!(json["workers"][1]["samples"], 1);
    assert!(json["workers"][0]["problem"].is_null(), "{json}");
    let (_, file) = game.profiler.file(Some(number)).unwrap();
    let text = String::from_utf8(file.to_vec()).unwrap();
    assert!(text.contains("#File 2: b.R\n\"g\" 2#3 \"GET:/b\" \n"), "{text}");
    // The next profile has another number.
    game.start("?seconds=1&worker=1").unwrap();
    assert!(game.profiler.file(Some(number + 1)).is_none());
    assert_eq!(game.begin(1, ""), number + 1);
    assert!(game.profiler.stop(None));
    game.end(1, number + 1);
    assert_eq!(game.finished()["workers"].as_array().unwrap().len(), 1);
}

#[test]
fn a_process_that_dies_or_does_not_begin_is_named() {
    let game = Game::new(3);
    game.start("?seconds=1").unwrap();
    game.begin(0, "\"f\" \n");
    let number = game.begin(1, "\"g\" \n");
    game.processes.lock().unwrap().remove(0);
    game.end(1, number);
    let json = game.finished();
    let problem = |at: usize| json["workers"][at]["problem"].as_str().unwrap_or("").to_owned();
    assert!(problem(0).contains("ended during"), "{json}");
    assert_eq!(problem(1), "");
    assert!(problem(2).contains("does not check for interrupts"), "{json}");
    // The samples of the process that has died are there.
    assert_eq!(json["summary"]["samples"], 2);
}

#[test]
fn each_person_gets_the_profile_with_the_number_of_its_start() {
    let game = Game::new(1);
    let first = game.start("?seconds=300").unwrap();
    game.begin(0, "\"f\" \n");
    assert!(!game.profiler.stop(Some(first + 1)));
    assert!(game.profiler.stop(Some(first)));
    game.end(0, first);
    game.finished();
    assert!(!game.profiler.stop(Some(first)), "it has ended");
    // While the next profile is running, the first one can still be fetched.
    let second = game.start("?seconds=300").unwrap();
    assert_ne!(first, second);
    game.begin(0, "\"g\" \n\"g\" \n");
    let of = |number| game.profiler.json(Some(number));
    assert_eq!(
        (&of(first).unwrap()["state"], game.state()),
        (&json!("finished"), json!("running"))
    );
    assert_eq!(of(first).unwrap()["summary"]["samples"], 1);
    assert_eq!(of(first).unwrap()["workers"][0]["samples"], 1);
    assert_eq!(game.profiler.file(None).unwrap().0, first);
    assert!(game.profiler.file(Some(second)).is_none());
    assert!(game.profiler.stop(Some(second)));
    game.end(0, second);
    assert_eq!(game.finished()["summary"]["samples"], 2);
    assert_eq!((of(first), game.profiler.file(Some(first))), (None, None));
}

#[test]
fn a_process_that_does_not_end_its_profile_cannot_fill_the_disk() {
    let game = Game::new(1);
    let number = game.start("?seconds=300").unwrap();
    let (_, file) = game.begin_open(0, "\"f\" \n");
    // R writes on and does not check for interrupts.
    let write = |size: usize| (&file).write_all(&vec![b'x'; size]).unwrap();
    let used = |most: usize| {
        let file = file.try_clone().unwrap();
        wait(|| file.metadata().unwrap().blocks() * 512 <= most as u64 + (1 << 16));
    };
    write(MAX_SIZE + 2 * MIN_SHARE);
    used(MAX_SIZE + MIN_SHARE);
    game.profiler.stop(Some(number));
    assert_eq!(game.finished()["summary"]["samples"], 1);
    write(1 << 20);
    used(0);
    // The file does not grow during the next profile either, which R has not noticed.
    let next = game.start("?seconds=300").unwrap();
    write(1 << 20);
    used(0);
    game.profiler.stop(Some(next));
    game.finished();
    write(1 << 20);
    used(0);
    // The server's file is closed when R has ended the profile.
    game.boards[0].set_profile_progress(number, ProfileProgress::Complete);
    let thread = || game.profiler.thread.lock().unwrap().as_ref().unwrap().is_finished();
    wait(thread);
}

#[test]
fn a_link_in_place_of_the_file_is_not_followed() {
    let game = Game::new(1);
    game.start("?seconds=1").unwrap();
    let word = game.boards[0].profile_word();
    wait(|| word.load(Acquire) != 0);
    let request = ProfileRequest::of_word(word.load(Acquire)).unwrap();
    let secret = game.folder.path().join("secret");
    fs::write(&secret, "sample.interval=10000\n\"secret\" \n").unwrap();
    let path = game.folder.path().join("0").join(profile_file(request.number));
    std::os::unix::fs::symlink(&secret, path).unwrap();
    game.boards[0].set_profile_progress(request.number, ProfileProgress::Running);
    game.end(0, request.number);
    assert_eq!(game.finished()["summary"]["samples"], 0);
    assert!(secret.exists());
}

#[test]
fn the_end_of_the_admin_listener_leaves_no_request_behind() {
    let game = Game::new(1);
    game.start("?seconds=300").unwrap();
    game.begin(0, "");
    let Game { profiler, boards, .. } = game;
    drop(profiler);
    assert_eq!(boards[0].profile_word().load(Acquire), 0);
}

#[test]
fn without_a_process_no_profile_is_started() {
    let game = Game::new(1);
    assert_eq!(game.start("?worker=1"), Err(StartError::NoProcess));
    game.processes.lock().unwrap().clear();
    assert_eq!(game.start(""), Err(StartError::NoProcess));
    assert_eq!(game.state(), "none");
}

#[test]
fn options_outside_of_their_limits_are_refused() {
    let read = |query: &str| ProfileOptions::of_query(query.as_bytes());
    assert_eq!(read(""), Ok(ProfileOptions { seconds: 10, worker: None }));
    let both = ProfileOptions { seconds: 300, worker: Some(2) };
    assert_eq!(read("?seconds=300&worker=2"), Ok(both));
    assert_eq!((read("?seconds=60").unwrap().interval_ms(), both.interval_ms()), (10, 50));
    for (query, expected) in [
        ("?seconds=0", "`seconds` must be from 1 to 300"),
        ("?seconds=301", "`seconds` must be from 1 to 300"),
        ("?seconds=", "`seconds` must be from 1 to 300"),
        ("?worker=-1", "`worker` must be the number of a worker"),
        ("?worker=4294967296", "`worker` must be the number of a worker"),
        ("?second=1", "a profile has only the options `seconds` and `worker`"),
    ] {
        assert_eq!(read(query).unwrap_err(), expected, "{query}");
    }
}
