//! `--workers`, and what goes with it.

use clap::Arg;

use super::given::{flag, text};

pub(super) fn options() -> Vec<Arg> {
    vec![
        text(
            "workers",
            "n",
            "R processes behind one address: 1 (the default), or auto, one for each processor",
        ),
        text("spares", "n", "so many more that wait, ready, for one of them to end"),
        text(
            "surge",
            "1/0",
            "0: a worker ends before the one that takes its place starts, where memory is short",
        ),
        text("warmup", "paths", "what a new worker is asked for before it serves: /,/predict?x=1"),
        text(
            "max-sessions",
            "n",
            "WebSockets that a worker may have, such as Shiny's sessions: 503 for more",
        ),
        text(
            "max-in-flight",
            "n",
            "requests that a worker has in hand whose R waits for others; 64 is the default",
        ),
        text("queue-timeout", "time", "how long a request waits for a worker: 503 then; 10s is the default"),
        text("max-requests", "n", "a worker that has answered so many is replaced by a new one"),
        text("max-age", "time", "a worker that is so old is replaced: 12h"),
        text(
            "max-memory",
            "size",
            "a worker that uses more memory than this is replaced: 512MB, 2GB; 0: no limit",
        ),
        text(
            "request-timeout",
            "time",
            "how long a worker may take for an answer: 504 then; for ever by default",
        ),
        text(
            "kill-stuck",
            "time",
            "a worker whose R is busy with one thing for so long is interrupted, or ended",
        ),
        text("start-timeout", "time", "how long a worker may take until it serves; 60s is the default"),
        text(
            "start-retries",
            "n",
            "how often a failed start is retried before rookery ends with status 3; 3 by default",
        ),
        text(
            "restart",
            "when",
            "whether a worker that fails is started again: always (the default) or never",
        ),
        text("sticky", "how", "whether clients come back to their worker: auto (for Shiny), cookie, none"),
        text(
            "name",
            "name",
            "end of the cookie's name, with --sticky; by default derived from path and address",
        ),
        flag("retry-begun", "a GET, HEAD or OPTIONS whose worker has died is begun once more by another"),
        flag(
            "keep-half-closed",
            "a client that sends a FIN behind its request is answered also where that had to wait",
        ),
        flag("reload", "to write an app: workers, even a single one, are replaced when a file of it changes"),
        flag(
            "interactive",
            "a single worker at this terminal, where R can prompt: for browser() and readline()",
        ),
        text("drain", "time", "how long what is in hand is waited for before the end; 60s is the default"),
        text(
            "drain-sessions",
            "time",
            "the same for WebSockets of a worker that was replaced: 4h; as --drain by default",
        ),
        text("min-ready", "n", "so many workers have to be ready for /-/ready; 1 is the default"),
        text("drain-status", "status", "what /-/ready answers while it ends: 503 (the default) or 404"),
        flag("fail-fast", "to end, with status 5, when all workers end again and again"),
    ]
}

#[cfg(test)]
mod tests {
    use crate::command_line::tests::served;

    #[test]
    fn whoever_has_said_all_and_waits_is_answered_where_that_is_asked_for() {
        let keeps = |words: &[&str]| served(words).workers.keep_half_closed;
        assert!(!keeps(&["serve", "a", "--workers", "2"]));
        assert!(keeps(&["serve", "a", "--workers", "2", "--keep-half-closed"]));
    }

    #[test]
    fn what_a_dead_worker_had_begun_is_not_begun_again_unless_that_is_asked_for() {
        let retries = |words: &[&str]| served(words).workers.retry_begun;
        assert!(!retries(&["serve", "a", "--workers", "2"]));
        assert!(retries(&["serve", "a", "--workers", "2", "--retry-begun"]));
    }
}
