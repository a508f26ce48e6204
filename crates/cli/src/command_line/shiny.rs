//! What pages of Shiny are told.

use clap::Arg;

use super::given::{Given, flag, text};
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
        flag("embed", "pages may lie in other sites': the workers' cookie is sent there, over HTTPS"),
    ]
}

/// Whether a page begins a new session when its own has ended; none: as R's settings have it.
///
/// # Errors
/// When it is another word.
pub(super) fn reconnect(given: &Given<'_>) -> Result<Option<&'static str>, Failure> {
    given.choice("reconnect", RECONNECT.map(|word| (word, word)))
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
        assert!(served(&["serve", "a", "--embed"]).is_embedded);
        assert_eq!(
            said(read(["rookery", "serve", "a", "--reconnect", "15s"].map(Into::into))),
            "`--reconnect` must be app, always or never, not `15s`."
        );
    }
}
