//! The server's I/O thread. It accepts connections, executes commands, enforces deadlines, and
//! stops and drains listeners.

mod commands;
mod counted_rejections;
mod io_context;
mod io_thread;
mod listen_error;
mod listener;
mod listening;
mod periodic_tasks;
mod server;
mod server_state;
mod supervised;
mod wake_timer;

pub use self::listen_error::ListenError;
pub use self::listener::{LimitsControl, Listener, LivenessProbe};
pub use self::server::Server;
pub use self::supervised::request::{Confirmation, SupervisorRequest};
pub use self::supervised::supervision::Supervision;
pub use self::supervised::worker_rings::WorkerRings;
