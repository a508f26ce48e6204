//! Tests of the supervisor: starting, watching, replacing and ending worker processes.

mod development;

mod log_lines;
mod one_worker;
mod reloads;
mod scaling;
mod server_end;
mod spares;
mod starts;
mod starts_and_sessions;
mod status;
mod worker_ends;
mod worker_timeout;
