//! What pages of Shiny are told.

use clap::Arg;

use super::given::{Given, flag, text, wrong};
use crate::failure::Failure;

/// R's setting `reconnect`.
const RECONNECT: [&str; 3] = ["app", "always", "never"];

pub(super) fn options() -> Vec<Arg> {
    vec![
        text(
            "reconnect",
            "when",
            "Shiny pages whose R has ended go on: app (if the app allows it), always, never",
        ),
        flag("embed", "pages may lie in other sites': the cookie of --workers is sent there, over HTTPS"),
    ]
}

/// Whether a page begins a new session when its own has ended; none: as R's settings have it.
///
/// # Errors
/// When it is another word.
pub(super) fn reconnect(given: &Given<'_>) -> Result<Option<&'static str>, Failure> {
    given.choice("reconnect", RECONNECT.map(|word| (word, word)))
}

/// Whether pages may lie in those of other sites.
///
/// # Errors
/// When there is one R: no cookie is sent then.
pub(super) fn is_embedded(given: &Given<'_>, has_workers: bool) -> Result<bool, Failure> {
    match given.flag("embed") {
        true if !has_workers => wrong("`--embed` needs `--workers`, with 2 or more."),
        is_embedded => Ok(is_embedded),
    }
}

#[cfg(test)]
mod tests {
    use crate::command_line::read;
    use crate::command_line::tests::served;
    use crate::failure::said;

    #[test]
    fn pages_are_told_what_was_asked_for() {
        let none = served(&["serve", "a"]);
        assert!(none.settings.reconnect.is_none() && !none.is_embedded);
        let both = served(&["serve", "a", "--workers", "2", "--embed", "--reconnect", "always"]);
        assert!(both.settings.reconnect == Some("always") && both.is_embedded);
        assert_eq!(
            said(read(["rookery", "serve", "a", "--embed"].map(Into::into))),
            "`--embed` needs `--workers`, with 2 or more."
        );
        assert_eq!(
            said(read(["rookery", "serve", "a", "--reconnect", "15s"].map(Into::into))),
            "`--reconnect` must be app, always or never, not `15s`."
        );
    }
}
