//! The file of the live page, joined from its sources, and the content security policy that allows
//! exactly its own scripts and styles.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};

const HTML: &str = include_str!("../../page/page.html");
const STYLES: [&str; 2] =
    [include_str!("../../page/uplot.min.css"), include_str!("../../page/page.css")];
/// The scripts of the page, in the order in which they run. The first is uPlot (MIT), whose licence
/// is in a comment of the page.
const SCRIPTS: [&str; 4] = [
    include_str!("../../page/uplot.min.js"),
    include_str!("../../page/format.js"),
    include_str!("../../page/charts.js"),
    include_str!("../../page/page.js"),
];
const LICENCE: &str = include_str!("../../page/uplot.LICENSE");

/// The live page.
pub(crate) struct Page {
    pub(crate) html: String,
    /// The value of the `Content-Security-Policy` header.
    pub(crate) policy: String,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let (style, script) = (STYLES.join("\n"), SCRIPTS.join("\n"));
    Page {
        policy: format!(
            "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; \
             img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            source_of(&script),
            source_of(&style)
        ),
        html: HTML
            .replace("{{licence}}", LICENCE.trim_end())
            .replace("{{style}}", &style)
            .replace("{{script}}", &script),
    }
});

impl Page {
    /// Returns the page, which is joined when it is requested for the first time.
    pub(crate) fn get() -> &'static Page {
        &PAGE
    }
}

/// Returns the source expression that allows an inline script or style with this content (Content
/// Security Policy Level 3, 2.3.1).
fn source_of(content: &str) -> String {
    format!("sha256-{}", STANDARD.encode(digest(&SHA256, content.as_bytes()).as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_one_small_file_that_loads_nothing() {
        let Page { html, policy } = Page::get();
        assert!(html.len() < 200_000, "{} bytes", html.len());
        assert_eq!((html.matches("<script>").count(), html.matches("<style>").count()), (1, 1));
        for (tag, directive) in [("script", "script-src"), ("style", "style-src")] {
            let (_, rest) = html.split_once(&format!("<{tag}>")).unwrap();
            let (content, _) = rest.split_once(&format!("</{tag}>")).unwrap();
            let allowed = format!("{directive} '{}'", source_of(content));
            assert!(policy.contains(&allowed), "{policy}");
        }
        assert!(!policy.contains("unsafe"));
        for external in ["src=", "@import", "url(", "style=", "onclick=", "{{"] {
            let own = html.replace(SCRIPTS[0], "");
            assert!(!own.contains(external), "{external}");
        }
        assert!(html.contains("Copyright (c) 2022 Leon Sorokin"));
    }
}
