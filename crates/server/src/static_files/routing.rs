//! Decides from the head of a request whether the server responds with a static file or the
//! application responds.

use std::sync::Arc;

use http::StatusCode;

use super::conditional_request::Conditions;
use super::lookup::Lookup;
use super::options::{Mapping, Validation};
use super::path_decoding::DecodedPath;
use super::path_on_disk::join;
use super::path_on_disk::name_rules::{NameRules, caseless};
use super::prefix_tree::PrefixTree;
use super::request_head::{BodyFraming, RequestHead};

/// The result of routing a request: the application responds, or the server responds with an error
/// or a static file.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "boxed, a lookup would cost an allocation")]
pub enum Route {
    /// The application responds to the request.
    Application,
    /// The server responds with 400 or 403 and the text of [`error_body`](super::error_body). If
    /// the request has a body, the connection must be closed, because the body was not read.
    Refuse(StatusCode),
    /// The server responds with the static file, if it exists.
    Open(Lookup),
}

/// Decides whether the server or the application responds to a request, without using the disk. The
/// documentation of the [module](super) lists the steps.
pub(crate) fn route(
    tree: &PrefixTree<Arc<Mapping>>,
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
    if options.exclude {
        return Route::Application;
    }
    if let Validation::Require(required) = &options.validation {
        if !required.is_met_by(request.headers.value(required.lower_name())) {
            return Route::Refuse(StatusCode::FORBIDDEN);
        }
    }
    let miss = || {
        if options.fallthrough {
            Route::Application
        } else {
            Route::Refuse(StatusCode::BAD_REQUEST)
        }
    };
    if !matches!(request.method, "GET" | "HEAD") {
        return miss();
    }
    if !matches!(request.body, BodyFraming::Absent | BodyFraming::Length(0)) {
        return Route::Refuse(StatusCode::BAD_REQUEST);
    }
    if target.is_hazardous() || rules.is_hazardous(rest) {
        return miss();
    }
    let path = join(&mapping.root, rest);
    Route::Open(Lookup::new(Arc::clone(mapping), path, Conditions::of(request)))
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
