//! The start and the end of servers, listeners and their threads.

mod io_commands;
mod listeners;
#[cfg(windows)]
mod named_pipes;
mod server_end;
