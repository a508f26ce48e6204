//! The terminal that a worker shares (`--interactive`): whether R is at a prompt, and the state of the
//! terminal before R has changed it.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often it is looked whether R is at a prompt. R takes a terminal out of its prompt when Ctrl-C
/// is pressed, so to look only then would be too late.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The terminal of this process's standard input.
#[derive(Debug, Clone)]
pub(crate) struct PromptWatcher {
    was_prompting: Arc<AtomicBool>,
    before: libc::termios,
}

impl PromptWatcher {
    /// Looks at the terminal from now on; `None` where standard input is none.
    pub(crate) fn start() -> Option<PromptWatcher> {
        let before = terminal_state()?;
        let was_prompting = Arc::new(AtomicBool::new(false));
        let was_prompting_weak = Arc::downgrade(&was_prompting);
        let thread =
            std::thread::Builder::new().name("rookery-terminal".to_owned()).spawn(move || {
                while let Some(was_prompting_weak) = was_prompting_weak.upgrade() {
                    was_prompting_weak.store(is_at_prompt(&before), Ordering::Relaxed);
                    drop(was_prompting_weak);
                    std::thread::sleep(CHECK_INTERVAL);
                }
            });
        thread.is_ok().then_some(PromptWatcher { was_prompting, before })
    }

    /// Returns whether R is at a prompt, or was a moment ago.
    pub(crate) fn is_prompting(&self) -> bool {
        self.was_prompting.load(Ordering::Relaxed) || is_at_prompt(&self.before)
    }

    /// Puts the terminal back into the state that it had: R may have been killed at a prompt.
    pub(crate) fn restore(&self) {
        // SAFETY: the state was read from the same descriptor.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw const self.before) };
    }
}

/// R reads a line with GNU readline, which reads key by key.
fn is_at_prompt(before: &libc::termios) -> bool {
    before.c_lflag & libc::ICANON != 0
        && terminal_state().is_some_and(|now| now.c_lflag & libc::ICANON == 0)
}

fn terminal_state() -> Option<libc::termios> {
    let mut state = MaybeUninit::<libc::termios>::zeroed();
    // SAFETY: room for the state, which is valid as zeros.
    unsafe {
        (libc::tcgetattr(libc::STDIN_FILENO, state.as_mut_ptr()) == 0).then(|| state.assume_init())
    }
}
