//! The decision whether the server or the application responds to a request, which depends only on
//! the request head.

use std::path::Path;
use std::sync::Arc;

use http::StatusCode;

use super::conditional_request::Conditions;
use super::file_cache::FilePath;
use super::lookup::Lookup;
use super::options::{Mapping, Validation};
use super::path_decoding::DecodedPath;
use super::prefix_tree::PrefixTree;
use super::request_head::{BodyFraming, RequestHead};

/// The component that responds to a request.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "boxed, a lookup would cost an allocation")]
pub enum Route {
    /// The application responds.
    Application,
    /// The server responds with 400 or 403 and the body of [`error_body`](super::error_body). Since
    /// no request body was read, the connection must be closed if there is one.
    Refuse(StatusCode),
    /// The server responds with the file, if it exists.
    Open(Lookup),
}

/// Routes a request. These are the steps in the documentation of the [module](super) that do not
/// need the disk.
pub(crate) fn route(tree: &PrefixTree<Arc<Mapping>>, request: &RequestHead<'_>) -> Route {
    if request.is_upgrade {
        return Route::Application;
    }
    let Some(target) = DecodedPath::decode(request.target) else { return Route::Application };
    let Some((mapping, rest)) = tree.longest_prefix(target.path()) else {
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
    if target.is_hazardous() {
        return miss();
    }
    let path = join(&mapping.root, rest);
    Route::Open(Lookup::new(Arc::clone(mapping), path, Conditions::of(request)))
}

/// Appends `rest`, which does not begin with `/`, to the path of a directory. `PathBuf::join` would
/// discard `root` if `rest` did begin with `/`, so this function is the safer choice.
fn join(root: &Path, rest: &[u8]) -> FilePath {
    let mut bytes = FilePath::from_slice(root.as_os_str().as_encoded_bytes());
    if !rest.is_empty() {
        if !bytes.ends_with(b"/") {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(rest);
    }
    bytes
}
