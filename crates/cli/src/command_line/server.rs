//! The options of the server's behaviour: proxies, WebSockets, limits and errors.

use std::path::Path;

use clap::{Arg, ArgAction};

use super::given::{Given, flag, path, text};
use super::shiny;
use crate::failure::Failure;
use crate::limits::Limit;
use crate::settings::{self, Settings};

/// Them, in the order of the help.
pub(super) fn options() -> Vec<Arg> {
    vec![
        text("trusted-proxies", "list", "proxies whose word on clients is taken: 192.0.2.1,10.0.0.0/8,unix"),
        flag("proxy-protocol", "connections begin with the header of the PROXY protocol"),
        text(
            "ws-origins",
            "list",
            "whose pages may open WebSockets: same,example.org,*.example.org; else anybody's",
        ),
        text(
            "ws-compression",
            "how",
            "of WebSockets: on, off (the default), or level=6,threshold=512,takeover=on",
        ),
        text(
            "limit",
            "name=value",
            "a limit of the server: body_bytes=10MB, request_time=30s; once for each",
        )
        .action(ArgAction::Append),
        flag("interrupt-requests", "ends what R does for a request when its request_time is over"),
        text("error-detail", "what", "what clients are told of errors: none (the default), message or full"),
        text(
            "request-id-header",
            "on/off",
            "whether responses have a header X-Request-Id; on is the default",
        ),
        path("spool-dir", "folder", "where large bodies of requests lie, instead of R's folder in TMPDIR"),
    ]
}

/// What they ask for.
///
/// # Errors
/// What is wrong with one.
pub(super) fn read(given: &Given<'_>) -> Result<Settings, Failure> {
    Ok(Settings {
        trusted_proxies: given.list("trusted-proxies")?.unwrap_or_default(),
        proxy_protocol: given.flag("proxy-protocol"),
        ws_origins: given.list("ws-origins")?,
        ws_compression: given.text("ws-compression").map(settings::compression).transpose()?,
        limits: given.all_texts("limit").map(|text| Limit::of(text)).collect::<Result<_, _>>()?,
        interrupt_requests: given.flag("interrupt-requests"),
        reconnect: shiny::reconnect(given)?,
        error_detail: given.choice("error-detail", ["none", "message", "full"].map(|word| (word, word)))?,
        request_id_header: given.choice("request-id-header", [("on", true), ("off", false)])?,
        spool_dir: given.path("spool-dir")?.map(Path::to_path_buf),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::tests::served;

    #[test]
    fn settings_are_understood() {
        let none = served(&["serve", "a"]).settings;
        assert!(none.trusted_proxies.is_empty() && !none.proxy_protocol && none.ws_origins.is_none());
        assert!(none.ws_compression.is_none() && none.spool_dir.is_none());
        let all = served(&[
            "--trusted-proxies",
            "::1, unix",
            "serve",
            "a",
            "--proxy-protocol",
            "--ws-origins=same",
            "--ws-compression",
            "on",
            "--spool-dir",
            "s",
        ])
        .settings;
        assert_eq!((all.trusted_proxies, all.proxy_protocol), (settings::list("::1,unix"), true));
        assert_eq!((all.ws_origins, all.spool_dir), (Some(vec!["same".to_owned()]), Some("s".into())));
        assert_eq!(all.ws_compression.map(|it| it.level), Some(2));
        let all = served(&[
            "serve",
            "a",
            "--limit",
            "body_bytes=1MB",
            "--limit=idle_time=5",
            "--error-detail",
            "full",
            "--request-id-header",
            "off",
            "--interrupt-requests",
        ])
        .settings;
        assert_eq!(
            all.limits.iter().map(|it| it.text.as_str()).collect::<Vec<_>>(),
            ["body_bytes=1MB", "idle_time=5"]
        );
        let both =
            served(&["--limit=body_bytes=1MB", "serve", "a", "--limit", "idle_time=5"]).settings.limits;
        assert_eq!(
            both.iter().map(|it| it.text.as_str()).collect::<Vec<_>>(),
            ["body_bytes=1MB", "idle_time=5"]
        );
        assert_eq!((all.error_detail, all.request_id_header), (Some("full"), Some(false)));
        assert!(all.interrupt_requests);
    }
}
