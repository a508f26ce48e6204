//! Starting and stopping servers and listeners.

mod io_commands;
mod listeners;
mod server_end;
