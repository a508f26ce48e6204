//! Watches the terminal that R shares with this program (`--interactive`). The module detects
//! whether R shows a prompt, and restores terminal settings that R has changed.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The interval at which the program checks whether R shows a prompt. A check at the moment of
/// Ctrl-C would be too late, because Ctrl-C ends the prompt.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The number of checks after a prompt during which lines are still R's. R shows the next prompt of
/// `browser()` as soon as it has run a line.
const CHECKS_AFTER_PROMPT: u32 = 40;

/// A thread that watches the terminal to find out whether R is at a prompt.
#[derive(Debug, Clone)]
pub(crate) struct PromptWatcher {
    /// The number of checks since R was at a prompt.
    checks_since: Arc<AtomicU32>,
    before: libc::termios,
}

impl PromptWatcher {
    /// Starts to watch the terminal for a prompt of R. Returns `None` if standard input is not a
    /// terminal.
    pub(crate) fn start() -> Option<PromptWatcher> {
        let before = terminal_state()?;
        let checks_since = Arc::new(AtomicU32::new(CHECKS_AFTER_PROMPT));
        let counter = Arc::downgrade(&checks_since);
        let thread =
            std::thread::Builder::new().name("rookery-terminal".to_owned()).spawn(move || {
                while let Some(counter) = counter.upgrade() {
                    // No other thread writes the counter.
                    let next = counter.load(Ordering::Relaxed).saturating_add(1);
                    counter.store(if is_at_prompt(&before) { 0 } else { next }, Ordering::Relaxed);
                    drop(counter);
                    std::thread::sleep(CHECK_INTERVAL);
                }
            });
        thread.is_ok().then_some(PromptWatcher { checks_since, before })
    }

    /// Returns true if R is at a prompt, or was at the last check.
    pub(crate) fn is_prompting(&self) -> bool {
        self.checks_since.load(Ordering::Relaxed) == 0 || is_at_prompt(&self.before)
    }

    /// Returns true if R is at a prompt, or was at one within the last two seconds, so that a line
    /// that is typed now is probably for R.
    pub(crate) fn takes_lines(&self) -> bool {
        self.checks_since.load(Ordering::Relaxed) < CHECKS_AFTER_PROMPT
            || is_at_prompt(&self.before)
    }

    /// Restores the terminal settings from before R was started, because R may have been killed
    /// while it showed a prompt.
    pub(crate) fn restore(&self) {
        // SAFETY: `before` was read from the same descriptor.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw const self.before) };
    }
}

/// Returns true if R shows a prompt. At a prompt, R has changed the terminal settings, because GNU
/// readline reads single keys. `before` contains the settings from before R was started.
fn is_at_prompt(before: &libc::termios) -> bool {
    before.c_lflag & libc::ICANON != 0
        && terminal_state().is_some_and(|now| now.c_lflag & libc::ICANON == 0)
}

fn terminal_state() -> Option<libc::termios> {
    let mut state = MaybeUninit::<libc::termios>::zeroed();
    // SAFETY: `state` has space for the settings, which are valid as zeros.
    unsafe {
        (libc::tcgetattr(libc::STDIN_FILENO, state.as_mut_ptr()) == 0).then(|| state.assume_init())
    }
}
