//! The admin listener of this R process, which serves status and metrics on its own thread. The C
//! code calls it with the functions `rk_admin_*`.

mod profile;
pub(crate) mod profiling;

use std::ffi::{CStr, c_char};
use std::sync::Arc;
use std::time::Duration;

use rookery_exchange::{AppTimes, Exchange, ListenerId};
use rookery_server::Config;
use rookery_status::{
    AdminAddress, AdminHandler, AdminListener, Lifecycle, RunFolder, ServerInfo, Standalone,
};
use rookery_worker_protocol::{RState, SharedScoreboard, Ticket};

use crate::core::{self, AdminServer, Core, config_of};
use crate::entry;
use crate::listener::tls::Https;

/// The return values of `rk_admin_start`: 0 for success, and -1 for failure.
const STARTED: i32 = 0;
const FAILED: i32 = -1;

impl Core {
    fn start_admin(&mut self, at: &AdminAddress, target: String) -> Result<(), String> {
        let scoreboard = Arc::new(SharedScoreboard::private());
        scoreboard.set_own_process();
        let queue_limit = self.config().queue.max_queued_requests;
        let about = ServerInfo { target, address: String::new() };
        let one = Standalone::new(about, Arc::clone(&scoreboard), queue_limit)
            .map_err(|error| format!("A thread cannot be started: {error}."))?;
        let handler =
            AdminHandler::new(Arc::clone(&one) as Arc<_>).map_err(|error| error.to_string())?;
        let admin = AdminListener::start(handler, Some(at)).map_err(|error| error.to_string())?;
        let folder = RunFolder::create(&std::env::temp_dir())
            .map_err(|error| error.to_string())
            .and_then(|folder| {
                admin.listen_in(folder.path()).map_err(|error| error.to_string())?;
                one.set_profile_folder(folder.path());
                Ok(folder)
            });
        if let Err(error) = &folder {
            // The app is served nevertheless.
            crate::write_log_line(&format!(
                "`rookery status` will not find this server by itself: {error}"
            ));
        }
        self.server().set_scoreboard(Some(scoreboard));
        self.admin = Some(AdminServer { admin, folder: folder.ok(), one });
        Ok(())
    }

    /// Returns the configuration of the server with the limits that R has set.
    fn config(&self) -> Config {
        config_of(&self.limits)
    }

    /// Makes the admin listener report on the current server, which has replaced the previous one.
    /// `config` is the configuration of the current server.
    pub(crate) fn observe_server(&self, config: &Config) {
        if let Some(AdminServer { one, .. }) = &self.admin {
            self.server().set_scoreboard(Some(Arc::clone(one.scoreboard())));
            one.set_queue_limit(config.queue.max_queued_requests);
        }
    }

    /// Makes the admin listener report on the certificates of a listener.
    pub(crate) fn observe_certificates(&self, https: &Https) {
        if let Some(AdminServer { one, .. }) = &self.admin {
            one.set_tls(https.setup.tls.clone(), https.setup.acme_failures());
        }
    }

    /// Notifies the admin listener that a listener for clients is closing. The admin listener then
    /// no longer checks whether that listener's thread makes progress.
    pub(crate) fn on_listener_end(&self, listener: ListenerId) {
        if let Some(AdminServer { one, .. }) = &self.admin {
            one.ends(listener);
        }
    }

    /// Records a response in the metrics when R sends it, and reports its route and times to the
    /// supervisor if the supervisor has forwarded the request.
    /// `now` is the current time in nanoseconds of the clock [`now`](rookery_worker_protocol::now).
    pub(crate) fn record_response(&self, exchange: &mut Exchange, now: u64) {
        let (handed, begun) = exchange.queue_and_start_times();
        if begun == 0 && exchange.is_client_disconnected() {
            // The client disconnected before R began with the request, so there is no response.
            return;
        }
        let scoreboard = self.supervised_scoreboard();
        if handed > 0 && begun > 0 {
            let (queue, r) = (begun.saturating_sub(handed), now.saturating_sub(begun));
            exchange.set_app_times(AppTimes {
                queue: Duration::from_nanos(queue),
                app: Duration::from_nanos(r),
            });
            if let (Some(scoreboard), Some(ticket)) =
                (scoreboard, Ticket::of_word(exchange.ticket()))
            {
                scoreboard.report_request(ticket, queue, r, exchange.route());
            }
        }
        if let Some(AdminServer { one, .. }) = &self.admin {
            one.answers(exchange, now);
        }
    }
}

/// Starts the admin listener, which serves status and metrics. `at` is its address, such as
/// `127.0.0.1:9100` or `unix:/path`. `target` is the app's path, which the status reports. Returns
/// 0, or -1 after setting the error message. If an admin listener already runs, does nothing.
///
/// # Safety
/// - `at` and `target` are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_admin_start(at: *const c_char, target: *const c_char) -> i32 {
    entry(FAILED, || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let [at, target] =
            [at, target].map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy());
        let Some(address) = AdminAddress::parse(&at) else {
            core::set_error(&format!(
                "`admin` must be an address with a port, such as 127.0.0.1:9100, or \
                 unix:/path/of/a/socket, not `{at}`."
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

/// Sets the state that the admin listener reports: 1 if the app listens on `address`, 2 if it is
/// stopping. In state 2, `address` may be NULL.
///
/// # Safety
/// - `address` is a C string or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rk_admin_set_state(state: i32, address: *const c_char) {
    entry((), || {
        // SAFETY: guaranteed by the caller, see `# Safety`.
        let address =
            (!address.is_null()).then(|| unsafe { CStr::from_ptr(address) }.to_string_lossy());
        core::with(|core| {
            if let Some(AdminServer { one, .. }) = &core.admin {
                one.is(
                    if state == 1 { Lifecycle::Serving } else { Lifecycle::Draining },
                    address.as_deref(),
                );
                core.set_r_activity(RState::Busy);
            }
        });
    });
}

/// Stops the admin listener, which serves status and metrics, if there is one.
#[unsafe(no_mangle)]
pub extern "C" fn rk_admin_stop() {
    entry((), || {
        // The listener is dropped outside the borrow, because dropping it waits for its thread.
        let ended = core::with(|core| {
            let admin = core.admin.take()?;
            core.server().set_scoreboard(None);
            Some(admin)
        });
        if let Some(AdminServer { one, .. }) = &ended {
            // The threads must end, because this library may be unloaded afterwards.
            one.end();
        }
        drop(ended);
    });
}
