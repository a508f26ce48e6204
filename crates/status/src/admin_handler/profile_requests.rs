//! Requests about profiles: to begin and end one, and for its state and its file.

use std::sync::Arc;

use rookery_exchange::Exchange;
use serde_json::json;

use super::{
    ACTIONS, AdminHandler, JSON, PROFILE, PROFILE_ACTION, STOP_PROFILE_ACTION, TEXT, push_header,
    write, write_bytes,
};
use crate::profile::{ProfileOptions, StartError};

impl AdminHandler {
    /// Writes the response to a request about a profile, whose sender has access.
    pub(super) fn answer_about_profile(&self, exchange: &mut Exchange) {
        let is_action = exchange.path().starts_with(ACTIONS);
        let is_allowed = match exchange.method() {
            b"POST" => is_action,
            b"GET" | b"HEAD" => !is_action,
            _ => false,
        };
        if !is_allowed {
            write(exchange, 405, TEXT, "405 Method Not Allowed\n");
            push_header(exchange, "Allow", if is_action { "POST" } else { "GET, HEAD" });
            return;
        }
        match exchange.path() {
            PROFILE_ACTION => {
                let (status, kind, text) = match self.start_profile(exchange.query()) {
                    Ok(number) => (202, JSON, json!({ "number": number }).to_string()),
                    Err((status, why)) => (status, TEXT, why),
                };
                write(exchange, status, kind, &text);
            }
            _ => self.answer_about_number(exchange),
        }
    }

    /// Writes the response to a request about the profile that the option `number` names, or about
    /// the last one.
    fn answer_about_number(&self, exchange: &mut Exchange) {
        let Ok(number) = number_of_query(exchange.query()) else {
            write(exchange, 400, TEXT, "`number` must be the number of a profile\n");
            return;
        };
        match exchange.path() {
            STOP_PROFILE_ACTION if self.profiler.stop(number) => write(exchange, 202, TEXT, ""),
            STOP_PROFILE_ACTION => {
                write(exchange, 409, TEXT, "that profile is not running: it has ended\n");
            }
            PROFILE => match self.profiler.json(number) {
                Some(state) => write(exchange, 200, JSON, &state.to_string()),
                None => write(exchange, 404, TEXT, "404 Not Found: there is no such profile\n"),
            },
            _ => match self.profiler.file(number) {
                Some((number, file)) => {
                    write_bytes(exchange, 200, "application/octet-stream", &file);
                    let name = format!("attachment; filename=\"rookery-profile-{number}.out\"");
                    push_header(exchange, "Content-Disposition", &name);
                }
                None => write(exchange, 404, TEXT, "404 Not Found: there is no such profile\n"),
            },
        }
    }

    /// Starts a profile, and returns its number.
    ///
    /// # Errors
    /// Returns the status and the text of the response if no profile can be started.
    fn start_profile(&self, query: &[u8]) -> Result<u32, (u16, String)> {
        let options = ProfileOptions::of_query(query).map_err(|why| (400, format!("{why}\n")))?;
        let source = Arc::clone(&self.source);
        let list = Box::new(move || source.profiled_processes());
        self.profiler.start(list, options).map_err(|error| match (error, options.worker) {
            (StartError::Busy, _) => {
                (409, "another profile is running: wait until it ends\n".to_owned())
            }
            (StartError::NoProcess, Some(worker)) => {
                (404, format!("there is no worker {worker} that serves\n"))
            }
            (StartError::NoProcess, None) => {
                (404, "there is no R process that can be profiled\n".to_owned())
            }
            (StartError::Thread(error), _) => {
                (500, format!("a thread cannot be started: {error}\n"))
            }
        })
    }
}

/// Reads the only option of requests about a profile, such as `?number=2`, if there is one.
fn number_of_query(query: &[u8]) -> Result<Option<u32>, ()> {
    if query.is_empty() {
        return Ok(None);
    }
    let number = query.strip_prefix(b"?number=").and_then(|it| std::str::from_utf8(it).ok());
    number.and_then(|it| it.parse().ok()).map(Some).ok_or(())
}
