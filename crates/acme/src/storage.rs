//! The files that store the ACME account, the certificate and the state of the attempts to get it.
//! Only the owner of the files can read them.
//!
//! ```text
//! <folder>/<authority>/account.json
//! <folder>/<authority>/<host>/certificate.pem    the certificate, its chain, and its key, in one
//!                                                file so that they always belong together
//!                             state.json         failures in a row, time of the next attempt
//!                             challenges.json    the responses to the challenges of an order
//!                             lock               held by the process that orders certificates
//! ```
//!
//! Several processes, also on several machines, may share a folder. One of them orders the
//! certificate, and all of them respond to the challenges of its order, because the authority may
//! connect to any of them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use instant_acme::AccountCredentials;
use ring::digest::{SHA256, digest};
use rookery_server::close_in_child;
use rookery_server::tls::{Challenges, IssuedCertificate};
use rookery_system::file;
use rookery_system::fork::CloseInChild;
use rookery_system::random::unpredictable;
use serde_json::{Value, json};

use crate::schedule::{MAX_WAIT, Window};
use crate::settings::{Challenge, Settings};

/// The maximum size in bytes of a stored file. A larger file is not read.
const MAX_FILE_SIZE: u64 = 1 << 20;

/// The maximum number of characters of a folder name that is derived from host names.
const MAX_NAME_LENGTH: usize = 100;

/// The paths of the files that store a certificate, its ACME account and the state of the attempts
/// to get the certificate.
#[derive(Debug, Clone)]
pub(crate) struct Storage {
    authority: PathBuf,
    host: PathBuf,
}

/// A lock on the storage folder: the exclusive right of this process to order the certificate. A
/// forked child process does not inherit the lock.
#[derive(Debug)]
pub(crate) struct Lock {
    // This field precedes the file, because after the file is closed its descriptor's number may
    // belong to another file.
    _close_in_child: CloseInChild,
    _file: File,
}

/// The state of the attempts to get a certificate, which is stored between restarts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct State {
    /// The number of failed attempts in a row. An attempt in progress already counts as failed.
    pub(crate) failures: u32,
    /// The time at which the last attempt to get the certificate began.
    pub(crate) attempted: Option<SystemTime>,
    /// The earliest time at which the next attempt to get the certificate may begin.
    pub(crate) next: Option<SystemTime>,
    pub(crate) renewal_info: Option<RenewalInfo>,
}

/// The renewal information (RFC 9773) that an authority sent for one certificate: when it wants the
/// certificate to be renewed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RenewalInfo {
    /// The identifier of the certificate that the renewal information is about.
    pub(crate) certificate: String,
    /// The time window in which the authority wants the certificate to be renewed, if the authority
    /// has sent one.
    pub(crate) window: Option<Window>,
    /// The time at which this renewal information expires and must be requested again.
    pub(crate) until: SystemTime,
}

impl State {
    /// Returns how long this process must still wait before the next attempt to get a certificate.
    /// The last attempt may have been made by another process, or before a restart of the server.
    /// Returns zero if the recorded time of the last attempt is in the future, because the clock
    /// must have been wrong.
    pub(crate) fn remaining_wait(&self, now: SystemTime) -> Duration {
        let Some(next) = self.next else { return Duration::ZERO };
        match self.attempted {
            Some(attempted) if attempted <= now => {
                let meant = next.duration_since(attempted).unwrap_or_default().min(MAX_WAIT);
                next.duration_since(now).unwrap_or_default().min(meant)
            }
            _ => Duration::ZERO,
        }
    }
}

/// The responses to the challenges of an order, each with the kind of the challenge and its token
/// or, for a challenge over TLS, its host.
pub(crate) type Responses = Vec<(Challenge, String, String)>;

impl Storage {
    /// Returns the paths of the storage, without access to files.
    fn new(settings: &Settings) -> Storage {
        let rest =
            settings.directory.split_once("://").map_or(&*settings.directory, |(_, rest)| rest);
        let authority = settings.folder.join(folder_name(rest.trim_end_matches('/')));
        Storage { host: authority.join(certificate_folder(&settings.domains)), authority }
    }

    /// Checks whether the storage can be opened, without changing anything.
    ///
    /// # Errors
    /// Returns an error if the folder that exists, or the one in which others would be created,
    /// cannot be written to.
    pub(crate) fn check(settings: &Settings) -> io::Result<Storage> {
        let storage = Storage::new(settings);
        file::check_creatable_folder(&storage.host).map(|()| storage)
    }

    /// Opens the storage of the ACME account and the certificate. Creates its folders if they do
    /// not exist, and makes them accessible only to this user.
    ///
    /// # Errors
    /// Returns an error if the folders cannot be created or written to.
    pub(crate) fn open(settings: &Settings) -> io::Result<Storage> {
        let storage = Storage::new(settings);
        file::private_folder(DirBuilder::new().recursive(true)).create(&storage.host)?;
        for folder in [&storage.authority, &storage.host] {
            // The folder may have been created by another program or with another umask.
            file::make_folder_private(folder)?;
        }
        // Its name is not that of another process that opens the storage at the same time.
        let probe = temporary(&storage.host.join("writable"));
        file::private(OpenOptions::new().write(true).create_new(true)).open(&probe)?;
        fs::remove_file(probe)?;
        // The file always exists, because a network file system may remember for a minute that a
        // file does not exist.
        let mut options = OpenOptions::new();
        file::private(options.append(true).create(true)).open(storage.challenges())?;
        Ok(storage)
    }

    /// Returns the path of the file that contains the issued certificate and its key.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.host.join("certificate.pem")
    }

    /// Returns the stored certificate, if it is valid for all of these hosts.
    pub(crate) fn issued(&self, domains: &[String]) -> Option<IssuedCertificate> {
        let issued = IssuedCertificate::read(&read_small_file(&self.certificate())?)?;
        domains.iter().all(|domain| issued.hosts.contains(domain)).then_some(issued)
    }

    /// Returns the paths of the stored certificates that have not expired and are valid for some of
    /// the hosts in `domains`. Such certificates exist if a host was later added to the settings.
    pub(crate) fn partial_certificates(&self, domains: &[String], now: SystemTime) -> Vec<PathBuf> {
        let folders = fs::read_dir(&self.authority).into_iter().flatten().filter_map(Result::ok);
        let mut found: Vec<PathBuf> = folders
            .map(|folder| folder.path().join("certificate.pem"))
            .filter(|path| *path != self.certificate())
            .filter(|path| {
                read_small_file(path).and_then(|pem| IssuedCertificate::read(&pem)).is_some_and(
                    |issued| {
                        issued.ends > now && issued.hosts.iter().any(|host| domains.contains(host))
                    },
                )
            })
            .collect();
        found.sort_unstable();
        found
    }

    pub(crate) fn save_certificate(&self, pem: &str) -> io::Result<()> {
        write_atomically(&self.certificate(), pem.as_bytes())
    }

    fn challenges(&self) -> PathBuf {
        self.host.join("challenges.json")
    }

    /// Stores the responses to challenges for all processes that share the folder.
    pub(crate) fn save_responses(&self, responses: &Responses) -> io::Result<()> {
        let kept: Vec<Value> = responses
            .iter()
            .map(|(kind, key, response)| json!([kind.name(), key, response]))
            .collect();
        write_atomically(&self.challenges(), Value::from(kept).to_string().as_bytes())
    }

    /// Returns the stored responses to challenges, which another process may have stored.
    pub(crate) fn responses(&self) -> Responses {
        let kept: Vec<Value> = read_small_file(&self.challenges())
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        kept.iter()
            .filter_map(|one| {
                let text = |at: usize| one[at].as_str().map(str::to_owned);
                Some((Challenge::from_name(&text(0)?)?, text(1)?, text(2)?))
            })
            .collect()
    }

    /// Acquires the lock on the storage folder. Only the process that holds the lock may order the
    /// certificate. Returns `None` if another process holds it. Dropping the lock releases it.
    pub(crate) fn lock(&self) -> io::Result<Option<Lock>> {
        let path = self.host.join("lock");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = file::private(&mut options).open(path)?;
        let is_ours = file::try_lock(&file)?;
        Ok(is_ours.then(|| Lock { _close_in_child: close_in_child(&file), _file: file }))
    }

    pub(crate) fn state(&self) -> State {
        let kept: Value = read_small_file(&self.host.join("state.json"))
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        let at = |value: &Value| {
            value.as_u64().and_then(|seconds| {
                SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
            })
        };
        let window = || {
            let of = kept["window"]["of"].as_str()?.to_owned();
            let [start, end, until] =
                ["start", "end", "until"].map(|name| at(&kept["window"][name]));
            let window = start.zip(end).map(|(start, end)| Window { start, end });
            Some(RenewalInfo { certificate: of, window, until: until? })
        };
        State {
            failures: kept["failures"]
                .as_u64()
                .and_then(|count| count.try_into().ok())
                .unwrap_or(0),
            attempted: at(&kept["attempted"]),
            next: at(&kept["next"]),
            renewal_info: window(),
        }
    }

    pub(crate) fn save_state(&self, state: &State) -> io::Result<()> {
        let seconds = |time: SystemTime| {
            time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
        };
        let window =
            state.renewal_info.as_ref().map(|RenewalInfo { certificate: of, window, until }| {
                let [start, end] =
                    [window.map(|it| seconds(it.start)), window.map(|it| seconds(it.end))];
                json!({ "of": of, "start": start, "end": end, "until": seconds(*until) })
            });
        let kept = json!({
            "failures": state.failures,
            "attempted": state.attempted.map(seconds),
            // Rounded up to a whole second, so that the next attempt is not too early.
            "next": state.next.map(|next| seconds(next) + 1),
            "window": window,
        });
        write_atomically(&self.host.join("state.json"), kept.to_string().as_bytes())
    }

    /// Returns the stored ACME account and its e-mail addresses.
    pub(crate) fn account(&self) -> Option<(AccountCredentials, Vec<String>)> {
        let kept: Value =
            serde_json::from_slice(&read_small_file(&self.authority.join("account.json"))?).ok()?;
        let emails = kept["emails"].as_array()?.iter().filter_map(Value::as_str);
        let emails = emails.map(str::to_owned).collect();
        Some((serde_json::from_value(kept).ok()?, emails))
    }

    pub(crate) fn save_account(
        &self,
        account: &AccountCredentials,
        emails: &[String],
    ) -> io::Result<()> {
        let mut kept = serde_json::to_value(account)?;
        kept["emails"] = json!(emails);
        write_atomically(&self.authority.join("account.json"), kept.to_string().as_bytes())
    }

    /// Deletes the stored ACME account, because the authority no longer knows it.
    pub(crate) fn forget_account(&self) -> io::Result<()> {
        fs::remove_file(self.authority.join("account.json"))
    }
}

/// Converts a text to a folder name. Replaces all characters except letters, digits, `-`, `.` and
/// `_` by `_`, and truncates the name to [`MAX_NAME_LENGTH`].
fn folder_name(text: &str) -> String {
    let is_plain = |char: &char| char.is_ascii_alphanumeric() || matches!(char, '-' | '.' | '_');
    let name: String = text
        .chars()
        .map(|char| if is_plain(&char) { char } else { '_' })
        .take(MAX_NAME_LENGTH)
        .collect();
    // A name must not be `..` or begin with a dot.
    if name.starts_with('.') { format!("_{name}") } else { name }
}

/// Returns the name of the folder in which the certificate for these hosts is stored. The order of
/// the hosts does not matter.
fn certificate_folder(domains: &[String]) -> String {
    let first = folder_name(domains.first().map_or("", String::as_str));
    if domains.len() < 2 && first.len() < MAX_NAME_LENGTH {
        return first;
    }
    let mut sorted: Vec<&str> = domains.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    let hash = digest(&SHA256, sorted.join(" ").as_bytes());
    let hash = hash.as_ref().iter().take(4).fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
    format!("{}-{hash:08x}", folder_name(sorted[0]))
}

fn read_small_file(path: &Path) -> Option<Vec<u8>> {
    let metadata = fs::metadata(path).ok()?;
    (metadata.is_file() && metadata.len() <= MAX_FILE_SIZE).then(|| fs::read(path).ok())?
}

/// Writes a file that only the owner can read. The file is never incomplete: not while it is
/// written, and not after a crash of the machine.
fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let next = temporary(path);
    let mut file = file::private(OpenOptions::new().write(true).create_new(true)).open(&next)?;
    let written =
        file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&next, path));
    if written.is_err() {
        let _ = fs::remove_file(&next);
    }
    written
}

/// Returns the path of a temporary file beside `path`. No other process uses the path, also not on
/// another machine, where a process may have the same id.
fn temporary(path: &Path) -> PathBuf {
    path.with_extension(format!("new{:016x}", unpredictable()))
}

/// Makes a server respond to challenges with `responses` instead of the previous ones.
///
/// # Errors
/// Returns an error if the system has no random numbers.
pub(crate) fn apply(responses: &Responses, challenges: &Challenges) -> io::Result<()> {
    challenges.clear();
    for (kind, key, response) in responses {
        match kind {
            Challenge::Http => challenges.set_http_response(key, response),
            Challenge::Tls => challenges.set_tls_response(key, response)?,
        }
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn storage(folder: &Path, domains: &[&str]) -> Storage {
        let domains = domains.iter().map(|name| (*name).to_owned()).collect();
        Storage::open(&Settings::new(domains, folder.join("acme"))).unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn only_the_owner_can_read_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let storage = storage(folder.path(), &["app.example.org"]);
        storage.save_certificate("x").unwrap();
        storage.save_state(&State::default()).unwrap();
        let credentials = json!({
            "id": "https://ca/a/1", "key_pkcs8": "AAAA", "directory": "https://ca/directory",
        });
        let credentials = serde_json::from_value(credentials).unwrap();
        storage.save_account(&credentials, &["a@b".to_owned()]).unwrap();
        let _lock = storage.lock().unwrap().unwrap();
        let place = folder.path().join("acme/acme-v02.api.letsencrypt.org_directory");
        assert_eq!(
            [mode(&folder.path().join("acme")), mode(&place), mode(&place.join("app.example.org"))],
            [0o700; 3]
        );
        for name in [
            "account.json",
            "app.example.org/certificate.pem",
            "app.example.org/state.json",
            "app.example.org/challenges.json",
            "app.example.org/lock",
        ] {
            assert_eq!(mode(&place.join(name)), 0o600, "{name}");
        }
        assert_eq!(
            fs::read_dir(place.join("app.example.org")).unwrap().count(),
            4,
            "nothing else is left"
        );
        let (account, emails) = storage.account().unwrap();
        assert_eq!((account.private_key().secret_pkcs8_der(), emails.len()), (&[0; 3][..], 1));
        storage.forget_account().unwrap();
        assert!(storage.account().is_none());
        fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
        super::tests::storage(folder.path(), &["app.example.org"]);
        assert_eq!(mode(&place), 0o700);
    }

    #[test]
    fn several_processes_can_open_the_storage_at_once() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        storage(folder.path(), &["a.example.org"])
                            .save_state(&State::default())
                            .unwrap();
                    }
                });
            }
        });
        let host = storage(folder.path(), &["a.example.org"]).host;
        assert_eq!(fs::read_dir(host).unwrap().count(), 2, "the state and the challenges are left");
    }

    #[test]
    fn a_check_creates_nothing_and_finds_folders_that_cannot_be_created() {
        let folder = tempfile::tempdir().unwrap();
        let settings = |at: &Path| Settings::new(vec!["a.example.org".to_owned()], at.to_owned());
        Storage::check(&settings(&folder.path().join("acme/more"))).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        fs::write(folder.path().join("file"), "").unwrap();
        for wrong in ["file", "file/acme"] {
            let error = Storage::check(&settings(&folder.path().join(wrong))).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotADirectory, "{wrong}");
        }
        Storage::open(&settings(&folder.path().join("acme"))).unwrap();
        Storage::check(&settings(&folder.path().join("acme"))).unwrap();
    }

    #[test]
    fn stored_responses_are_those_that_another_process_reads() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = [(); 2].map(|()| storage(folder.path(), &["a.example.org"]));
        assert_eq!(other.responses(), []);
        let responses = vec![
            (Challenge::Http, "token".to_owned(), "token.key".to_owned()),
            (Challenge::Tls, "a.example.org".to_owned(), "other.key".to_owned()),
        ];
        one.save_responses(&responses).unwrap();
        assert_eq!(other.responses(), responses);
        fs::write(one.challenges(), "[[\"dns-01\", \"a\", \"b\"], 7, [\"http-01\"]]").unwrap();
        assert_eq!(other.responses(), []);
    }

    #[test]
    fn only_one_process_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let one = storage(folder.path(), &["a.example.org"]);
        let held = one.lock().unwrap();
        assert!(held.is_some() && one.lock().unwrap().is_none());
        assert!(
            storage(folder.path(), &["b.example.org"]).lock().unwrap().is_some(),
            "of another certificate"
        );
        drop(held);
        assert!(one.lock().unwrap().is_some());
    }

    #[test]
    fn the_state_round_trips_and_implausible_times_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let storage = storage(folder.path(), &["a.example.org"]);
        assert_eq!(storage.state(), State::default());
        let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let window = Some(Window { start: at(50), end: at(60) });
        let window = Some(RenewalInfo { certificate: "x.y".to_owned(), window, until: at(70) });
        let state = State {
            failures: 3,
            attempted: Some(at(100)),
            next: Some(at(199)),
            renewal_info: window,
        };
        storage.save_state(&state).unwrap();
        assert_eq!(storage.state(), State { next: Some(at(200)), ..state.clone() });
        assert_eq!(storage.state().remaining_wait(at(150)), Duration::from_secs(50));
        assert_eq!(storage.state().remaining_wait(at(300)), Duration::ZERO);
        assert_eq!(storage.state().remaining_wait(at(100)), Duration::from_secs(100));
        // The clock was set back, so the recorded time is no reason to wait.
        assert_eq!(storage.state().remaining_wait(at(99)), Duration::ZERO);
        assert_eq!(storage.state().remaining_wait(at(1)), Duration::ZERO);
        let endless =
            State { attempted: Some(at(100)), next: Some(at(100_000_000)), ..State::default() };
        assert_eq!(endless.remaining_wait(at(150)), MAX_WAIT, "no wait of ours is longer");
        let unknown = State { next: Some(at(200)), ..State::default() };
        assert_eq!(unknown.remaining_wait(at(150)), Duration::ZERO);
        for rubbish in
            ["", "{", "[]", "{\"failures\":-1,\"next\":18446744073709551615,\"window\":7}"]
        {
            fs::write(storage.host.join("state.json"), rubbish).unwrap();
            assert_eq!(storage.state(), State::default(), "{rubbish}");
        }
    }

    #[test]
    fn folders_are_named_after_their_hosts() {
        let of = |domains: &[&str]| {
            certificate_folder(&domains.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["app.example.org"]), "app.example.org");
        assert_eq!(of(&["2001:db8::1"]), "2001_db8__1");
        assert_eq!(of(&["b.org", "a.org"]), of(&["a.org", "b.org"]));
        assert!(of(&["b.org", "a.org"]).starts_with("a.org-"));
        assert_ne!(of(&["a.org", "b.org"]), of(&["a.org", "c.org"]));
        let long = format!("{}.org", "a".repeat(200));
        assert_ne!(of(&[&format!("{long}x")]), of(&[&format!("{long}y")]));
        assert_eq!(folder_name("../x:1/y"), "_.._x_1_y");
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("acme"), "a file").unwrap();
        assert!(
            Storage::open(&Settings::new(vec!["a.b".to_owned()], folder.path().join("acme")))
                .is_err()
        );
    }
}
