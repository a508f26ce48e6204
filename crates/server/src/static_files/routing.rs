//! Decides from the head of a request whether the server responds with a static file or the
//! application responds.

use std::sync::Arc;

use http::StatusCode;

use super::conditional_request::Conditions;
use super::lookup::{Lookup, SiteRules};
use super::options::{Mapping, Validation};
use super::path_decoding::DecodedPath;
use super::path_on_disk::join;
use super::path_on_disk::name_rules::{NameRules, caseless};
use super::path_on_disk::protected_path::{ProtectedPath, is_source};
use super::prefix_tree::PrefixTree;
use super::request_head::{BodyFraming, RequestHead};

/// The result of routing a request: the application responds, or the server responds with an error
/// or a static file.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "boxed, a lookup would cost an allocation")]
pub enum Route {
    /// The application responds to the request.
    Application,
    /// The server responds with 400, 403 or 405 and the text of [`error_body`](super::error_body).
    /// If the request has a body, the connection must be closed, because the body was not read.
    Refuse(StatusCode),
    /// The server responds with the static file, if it exists.
    Open(Lookup),
}

/// Decides whether the server or the application responds to a request, without using the disk. The
/// documentation of the [module](super) lists the steps.
pub(crate) fn route(
    tree: &PrefixTree<Arc<Mapping>>,
    protected: &[ProtectedPath],
    rules: NameRules,
    request: &RequestHead<'_>,
) -> Route {
    if request.is_upgrade {
        return Route::Application;
    }
    let Some(target) = DecodedPath::decode(request.target) else { return Route::Application };
    let Some((mapping, rest)) = longest_prefix(tree, rules, target.path()) else {
        return Route::Application;
    };
    let options = &mapping.options;
    if options.exclude || protected.iter().any(|key| key.may_contain(target.path(), rest)) {
        return Route::Application;
    }
    if let Validation::Require(required) = &options.validation {
        if !required.is_met_by(request.headers.value(required.lower_name())) {
            return Route::Refuse(StatusCode::FORBIDDEN);
        }
    }
    let refuse = |status| {
        if options.fallthrough { Route::Application } else { Route::Refuse(status) }
    };
    match request.method {
        "GET" | "HEAD" => {}
        // httpuv responds with 400, and its tests rely on the status for POST.
        "POST" if !options.site => return refuse(StatusCode::BAD_REQUEST),
        _ => return refuse(StatusCode::METHOD_NOT_ALLOWED),
    }
    if !matches!(request.body, BodyFraming::Absent | BodyFraming::Length(0)) {
        return Route::Refuse(StatusCode::BAD_REQUEST);
    }
    if target.is_hazardous() || rules.is_hazardous(rest) {
        return refuse(StatusCode::BAD_REQUEST);
    }
    let path = join(&mapping.root, rest);
    let site = if options.site { site_rules(request.target, rest) } else { SiteRules::default() };
    Route::Open(Lookup::new(Arc::clone(mapping), path, site, Conditions::of(request)))
}

/// Returns the rules of a site for a request. `rest` is the part of the path after the static path.
fn site_rules(target: &[u8], rest: &[u8]) -> SiteRules {
    let is_without_slash = !ends_with_slash(target);
    SiteRules {
        redirects_folder: is_without_slash,
        // The page of the site's folder itself would be outside of this folder.
        finds_page: is_without_slash && !rest.is_empty(),
        is_hidden: is_source(rest),
    }
}

/// Returns true if the path in a request target ends with a slash. An encoded slash does not count,
/// because browsers do not resolve relative links at it.
fn ends_with_slash(target: &[u8]) -> bool {
    let end = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
    target[..end].ends_with(b"/")
}

/// Finds the static path whose key is the longest prefix of `path`, as
/// [`PrefixTree::longest_prefix`].
fn longest_prefix<'tree, 'path>(
    tree: &'tree PrefixTree<Arc<Mapping>>,
    rules: NameRules,
    path: &'path [u8],
) -> Option<(&'tree Arc<Mapping>, &'path [u8])> {
    if !rules.is_ignoring_case() {
        return tree.longest_prefix(path);
    }
    // The tree has keys without case. The rest of the path may have another length in that form,
    // but it has as many segments.
    let folded = caseless(path);
    let (mapping, rest) = tree.longest_prefix(&folded)?;
    let mut start = path.len();
    if !rest.is_empty() {
        let segments = rest.split(|byte| *byte == b'/').count();
        let mut slashes = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
        start = slashes.nth(segments - 1)?.0 + 1;
    }
    Some((mapping, &path[start..]))
}
