//! The state that the pages of an app depend on: the version of the app, and the failure of its
//! last start. Other threads change the state, and wake the server's I/O threads.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rookery_exchange::IoWaker;
use rookery_server::PageScript;
use serde_json::json;

use crate::failure_page::StartFailure;

/// The path of the script in the URLs of the server, without a slash at its beginning.
pub(crate) const SCRIPT: &str = "__rookery__/reload.js";

/// The maximum number of messages that wait for the I/O thread. Older messages are dropped: a page
/// that has missed one learns the version of the app from the next.
const MAX_MESSAGES: usize = 64;

/// The state of an app under development, from which the pages that are open in browsers learn when
/// they have to be reloaded.
pub struct LiveReload {
    script: Arc<PageScript>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    failure: Option<Arc<StartFailure>>,
    was_ready: bool,
    /// The messages that have not been sent to the open pages yet.
    messages: VecDeque<PageMessage>,
    wakers: Vec<Arc<dyn IoWaker>>,
}

/// A message to the open pages.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageMessage {
    /// The message as JSON.
    pub(crate) text: String,
    /// Whether the message has details of an error, which only pages with the token get.
    pub(crate) has_details: bool,
}

impl LiveReload {
    /// Creates the state of an app that has not been started yet.
    pub fn new() -> Arc<LiveReload> {
        let script = Arc::new(PageScript::new(SCRIPT));
        // A page of an earlier server at the same address must not have the same version.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        script.set_version(u64::try_from(now.as_millis()).unwrap_or_default());
        Arc::new(LiveReload { script, state: Mutex::default() })
    }

    /// Returns the script that the server inserts into pages.
    pub fn script(&self) -> Arc<PageScript> {
        Arc::clone(&self.script)
    }

    /// Reloads the open pages, because the app has been started again. Before its first start, no
    /// page can be open. Returns true if the start before this one has failed.
    pub fn on_ready(&self) -> bool {
        let mut state = self.lock();
        let had_failed = state.failure.take().is_some();
        if std::mem::replace(&mut state.was_ready, true) || had_failed {
            self.next_version(&mut state);
        }
        had_failed
    }

    /// Shows an error page in the open pages, and in place of all pages of the app, until the next
    /// call of [`on_ready`](Self::on_ready).
    pub fn on_start_failed(&self, failure: StartFailure) {
        let mut state = self.lock();
        state.failure = Some(Arc::new(failure));
        self.next_version(&mut state);
    }

    /// Reloads the open pages, because a file has changed that the pages consist of.
    pub fn on_page_changed(&self) {
        self.next_version(&mut self.lock());
    }

    /// Replaces style sheets and images in the open pages.
    pub fn on_styles_changed(&self, names: &[String]) {
        self.lock().send(json!({ "styles": names }).to_string());
    }

    /// Makes the open pages show that the app is being started again.
    pub fn on_restarting(&self) {
        self.lock().send(json!({ "restarting": true }).to_string());
    }

    /// Shows an error in the open pages that have the token and belong to the session. The first
    /// line of `report` is the beginning of the id of the session, and an HTML page follows.
    pub fn on_session_error(&self, report: &[u8]) {
        let report = String::from_utf8_lossy(report);
        if let Some((session, page)) = report.split_once('\n') {
            let text = json!({ "error": { "session": session, "page": page } }).to_string();
            self.lock().queue(PageMessage { text, has_details: true });
        }
    }

    /// Returns the failure of the last start of the app.
    pub(crate) fn failure(&self) -> Option<Arc<StartFailure>> {
        self.lock().failure.clone()
    }

    /// Returns the message about the current version of the app.
    pub(crate) fn version_message(&self) -> String {
        json!({ "version": self.script.version() }).to_string()
    }

    /// Adds the waker of an I/O thread.
    pub(crate) fn add_waker(&self, waker: Arc<dyn IoWaker>) {
        self.lock().wakers.push(waker);
    }

    /// Takes the messages that have not been sent to the open pages yet.
    pub(crate) fn take_messages(&self) -> VecDeque<PageMessage> {
        std::mem::take(&mut self.lock().messages)
    }

    pub(crate) fn has_messages(&self) -> bool {
        !self.lock().messages.is_empty()
    }

    fn next_version(&self, state: &mut State) {
        self.script.set_version(self.script.version() + 1);
        state.send(self.version_message());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Queues a message without details of errors for the open pages.
    fn send(&mut self, text: String) {
        self.queue(PageMessage { text, has_details: false });
    }

    fn queue(&mut self, message: PageMessage) {
        if self.messages.len() == MAX_MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back(message);
        self.wakers.iter().for_each(|waker| waker.wake());
    }
}

impl fmt::Debug for LiveReload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveReload").field("script", &self.script).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl IoWaker for Counter {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn wake_within(&self, _delay: Duration) -> bool {
            true
        }
    }

    #[test]
    fn each_event_tells_the_pages_and_wakes_the_io_thread() {
        let live = LiveReload::new();
        let first = live.script().version();
        let version = |after: u64| format!("{{\"version\":{}}}", first + after);
        let waker = Arc::new(Counter::default());
        live.add_waker(Arc::clone(&waker) as _);
        live.on_restarting();
        live.on_start_failed(StartFailure { page: None, text: "no".to_owned() });
        assert!(live.failure().is_some());
        live.on_ready();
        assert!(live.failure().is_none());
        live.on_styles_changed(&["a\"b.css".to_owned()]);
        live.on_page_changed();
        live.on_session_error(b"4f2a\n<p>a \"mistake\"\n");
        let expected = [
            (r#"{"restarting":true}"#.to_owned(), false),
            (version(1), false),
            (version(2), false),
            (r#"{"styles":["a\"b.css"]}"#.to_owned(), false),
            (version(3), false),
            (r#"{"error":{"page":"<p>a \"mistake\"\n","session":"4f2a"}}"#.to_owned(), true),
        ];
        assert_eq!(
            live.take_messages(),
            expected.map(|(text, has_details)| PageMessage { text, has_details })
        );
        assert_eq!((waker.0.load(Ordering::Relaxed), live.script().version()), (6, first + 3));
        assert!(!live.has_messages());
    }

    #[test]
    fn a_limited_number_of_messages_waits() {
        let live = LiveReload::new();
        (0..MAX_MESSAGES + 9).for_each(|_| live.on_page_changed());
        let messages = live.take_messages();
        assert_eq!(messages.len(), MAX_MESSAGES);
        assert_eq!(messages.back().unwrap().text, live.version_message());
    }
}
