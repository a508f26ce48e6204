//! This process as a server that is looked after: an admin listener beside those of its apps, on a thread of its own. `rk_admin_*`.

use std::ffi::{CStr, c_char};
use std::sync::Arc;

use rookery_exchange::{Command, ListenerId};
use rookery_server::Config;
use rookery_status::{
    AdminAddress, AdminHandler, AdminListener, Lifecycle, RunFolder, ServerInfo, Standalone,
    StandaloneInputs,
};
use rookery_worker_protocol::{RState, Scoreboard, SharedScoreboard, now};

use crate::core::{self, Core};
use crate::entry;
use crate::limits::config_of;

/// What it has. In the order in which it ends.
#[derive(Debug)]
pub(crate) struct Administered {
    _admin: AdminListener,
    /// Where `rookery status` finds it, if one could be made.
    _folder: Option<RunFolder>,
    pub(crate) one: Arc<Standalone>,
}

/// As `rk_admin_start` reports it.
const STARTED: i32 = 0;
const FAILED: i32 = -1;

impl Core {
    /// Where what R does is written, if anybody reads it.
    pub(crate) fn board(&self) -> Option<&Scoreboard> {
        self.supervised_board().or_else(|| self.admin.as_ref().map(|admin| &***admin.one.board()))
    }

    fn administer(&mut self, at: &AdminAddress, target: String) -> Result<(), String> {
        let (board, _) = SharedScoreboard::create()
            .map_err(|error| format!("`admin` cannot be had here: {error}."))?;
        let board = Arc::new(board);
        board.introduce_self();
        let seen = StandaloneInputs {
            board: Arc::clone(&board),
            reports: Arc::clone(self.server().reports()),
            queue_limit: self.config().queue.requests,
        };
        let about = ServerInfo { target, address: String::new() };
        let one = Standalone::new(about, seen)
            .map_err(|error| format!("A thread cannot be started: {error}."))?;
        let admin = AdminListener::start(AdminHandler::new(Arc::clone(&one) as Arc<_>), Some(at))
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
        self.admin = Some(Administered { _admin: admin, _folder: folder.ok(), one });
        Ok(())
    }

    /// What the server is set up with.
    fn config(&self) -> Config {
        config_of(&self.limits)
    }

    /// A server is in the place of the one before: what there is to look at is its own.
    pub(crate) fn look_at_server(&self, config: &Config) {
        if let Some(Administered { one, .. }) = &self.admin {
            self.server().set_scoreboard(Some(Arc::clone(one.board())));
            one.look_at(Arc::clone(self.server().reports()), config.queue.requests);
        }
    }

    /// A listener is to end: its thread may, too.
    pub(crate) fn is_over(&self, listener: ListenerId) {
        if let Some(Administered { one, .. }) = &self.admin {
            one.ends(listener);
        }
    }

    /// R hands an exchange back, or somebody does in its place.
    pub(crate) fn counts(&self, command: &Command) {
        let Command::Respond(exchange) = command else { return };
        if self.admin.is_none() && (self.supervised_board().is_none() || exchange.ticket() != 0) {
            return;
        }
        let (handed, begun) = exchange.times();
        // Whose client had gone before R began with it was not answered.
        if begun == 0 && exchange.is_client_disconnected() {
            return;
        }
        if let Some(Administered { one, .. }) = &self.admin {
            one.answers(exchange, now());
        } else if let Some(board) = self.supervised_board() {
            board.tally().answer(exchange.response().status(), handed, begun, now());
        }
    }
}

/// AdminHandler those who look after this process at an address (`127.0.0.1:9100`, `unix:/path`); 0, or -1 with the error set. Where it does
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
        let Some(address) = AdminAddress::parse(&at) else {
            core::set_error(&format!(
                "`admin` must be an address with its port, such as 127.0.0.1:9100, or unix:/path/of/a/socket, not `{at}`."
            ));
            return FAILED;
        };
        core::with(|core| {
            if core.admin.is_some() {
                return STARTED;
            }
            match core.administer(&address, target.into_owned()) {
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
            if let Some(Administered { one, .. }) = &core.admin {
                one.is(
                    if course == 1 { Lifecycle::Serving } else { Lifecycle::Draining },
                    address.as_deref(),
                );
                core.r_is(RState::Busy);
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
        if let Some(Administered { one, .. }) = &ended {
            // This library may be unloaded behind this.
            one.end();
        }
        drop(ended);
    });
}
