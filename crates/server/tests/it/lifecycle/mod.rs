//! The start and the end of servers, listeners and their threads.

mod io_commands;
mod listeners;
mod server_end;
