//! Tests of the supervisor: starting, watching, replacing and ending worker processes.

mod acceptor;
mod development;
mod expected_failures;
mod log_lines;
mod reloads;
mod scaling;
mod server_end;
mod spares;
mod starts;
mod status;
mod worker_ends;
mod worker_timeout;
