//! This process as a server that is looked after: an admin listener beside those of its apps, on a thread of its own. `rk_admin_*`.

use std::ffi::{CStr, c_char};
use std::sync::Arc;

use rookery_exchange::{Command, ListenerId};
use rookery_server::Config;
use rookery_status::{About, Admin, AdminAt, Answers, Course, OneR, RunFolder, Seen};
use rookery_worker::{Board, R, Scoreboard, now};

use crate::core::{self, Core};
use crate::entry;
use crate::limits::config_of;

/// What it has. In the order in which it ends.
#[derive(Debug)]
pub(crate) struct AdminServer {
    _admin: Admin,
    /// Where `rookery status` finds it, if one could be made.
    _folder: Option<RunFolder>,
    pub(crate) one: Arc<OneR>,
}

/// As `rk_admin_start` reports it.
const STARTED: i32 = 0;
const FAILED: i32 = -1;

impl Core {
    /// Where what R does is written, if anybody reads it.
    pub(crate) fn board(&self) -> Option<&Board> {
        self.supervised_scoreboard()
            .or_else(|| self.admin.as_ref().map(|admin| &***admin.one.board()))
    }

    fn start_admin(&mut self, at: &AdminAt, target: String) -> Result<(), String> {
        let (board, _) = Scoreboard::create()
            .map_err(|error| format!("`admin` cannot be had here: {error}."))?;
        let board = Arc::new(board);
        board.introduce_self();
        let seen = Seen {
            board: Arc::clone(&board),
            reports: Arc::clone(self.server().reports()),
            queue_limit: self.config().queue.requests,
        };
        let about = About { target, address: String::new() };
        let one = OneR::new(about, seen)
            .map_err(|error| format!("A thread cannot be started: {error}."))?;
        let admin = Admin::start(Answers::new(Arc::clone(&one) as Arc<_>), Some(at))
            .map_err(|error| error.to_string())?;
        let folder = RunFolder::create(&std::env::temp_dir())
            .map_err(|error| error.to_string())
            .and_then(|folder| {
                admin.listen_in(folder.path()).map_err(|error| error.to_string())?;
                Ok(folder)
            });
        if let Err(error) = &folder {
            // What is served goes on.
            crate::write_log_line(&format!(
                "`rookery status` will not find this server by itself: {error}"
            ));
        }
        self.server().set_scoreboard(Some(board));
        self.admin = Some(AdminServer { _admin: admin, _folder: folder.ok(), one });
        Ok(())
    }

    /// What the server is set up with.
    fn config(&self) -> Config {
        config_of(&self.limits)
    }

    /// A server is in the place of the one before: what there is to look at is its own.
    pub(crate) fn observe_server(&self, config: &Config) {
        if let Some(AdminServer { one, .. }) = &self.admin {
            self.server().set_scoreboard(Some(Arc::clone(one.board())));
            one.look_at(Arc::clone(self.server().reports()), config.queue.requests);
        }
    }

    /// A listener is to end: its thread may, too.
    pub(crate) fn on_listener_end(&self, listener: ListenerId) {
        if let Some(AdminServer { one, .. }) = &self.admin {
            one.ends(listener);
        }
    }

    /// R hands an exchange back, or somebody does in its place.
    pub(crate) fn record_response(&self, command: &Command) {
        let Command::Respond(exchange) = command else { return };
        if self.admin.is_none()
            && (self.supervised_scoreboard().is_none() || exchange.ticket() != 0)
        {
            return;
        }
        let (handed, begun) = exchange.times();
        // Whose client had gone before R began with it was not answered.
        if begun == 0 && exchange.is_departed() {
            return;
        }
        if let Some(AdminServer { one, .. }) = &self.admin {
            one.answers(exchange, now());
        } else if let Some(board) = self.supervised_scoreboard() {
            board.tally().answer(exchange.reply().status(), handed, begun, now());
        }
    }
}

/// Answers those who look after this process at an address (`127.0.0.1:9100`, `unix:/path`); 0, or -1 with the error set. Where it does
/// already, that is left as it is.
///
/// # Safety
/// - `at` and `target`, what is served, are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_admin_start(at: *const c_char, target: *const c_char) -> i32 {
    entry(FAILED, || {
        // SAFETY: the caller's duty.
        let [at, target] =
            [at, target].map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy());
        let Some(address) = AdminAt::parse(&at) else {
            core::set_error(&format!(
                "`admin` must be an address with its port, such as 127.0.0.1:9100, or unix:/path/of/a/socket, not `{at}`."
            ));
            return FAILED;
        };
        core::with(|core| {
            if core.admin.is_some() {
                return STARTED;
            }
            match core.start_admin(&address, target.into_owned()) {
                Ok(()) => STARTED,
                Err(error) => {
                    core::set_error(&error);
                    FAILED
                }
            }
        })
    })
}

/// Says where it is: 1 the app listens, and `address` is where; 2 it ends, and `address` may be NULL.
///
/// # Safety
/// - `address` is a C string or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_admin_set_state(course: i32, address: *const c_char) {
    entry((), || {
        // SAFETY: the caller's duty.
        let address =
            (!address.is_null()).then(|| unsafe { CStr::from_ptr(address) }.to_string_lossy());
        core::with(|core| {
            if let Some(AdminServer { one, .. }) = &core.admin {
                one.is(
                    if course == 1 { Course::Serving } else { Course::Draining },
                    address.as_deref(),
                );
                core.set_r_activity(R::Busy);
            }
        });
    });
}

/// Ends the admin listener.
#[unsafe(no_mangle)]
pub extern "C" fn rk_admin_stop() {
    entry((), || {
        // Outside the borrow: it waits for its thread.
        let ended = core::with(|core| {
            core.server().set_scoreboard(None);
            core.admin.take()
        });
        if let Some(AdminServer { one, .. }) = &ended {
            // This library may be unloaded behind this.
            one.end();
        }
        drop(ended);
    });
}
