//! Who answers a request: decided from its head alone.

use std::path::Path;
use std::sync::Arc;

use http::StatusCode;

use super::condition::Conditions;
use super::lookup::Lookup;
use super::options::{Mapping, Validation};
use super::ready::FilePath;
use super::request::{BodyFraming, RequestHead};
use super::target::Target;
use super::tree::Tree;

/// Who answers.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "boxed, a lookup would cost an allocation")]
pub enum Decision {
    /// The application.
    Application,
    /// The server, with 400 or 403 and the body of [`error_body`](super::error_body). A request body was not read: the
    /// connection cannot go on where there is one.
    Refuse(StatusCode),
    /// The file, if it is there.
    Open(Lookup),
}

/// The steps of the [module](super) up to the first that needs the disk.
pub(crate) fn decide(tree: &Tree<Arc<Mapping>>, request: &RequestHead<'_>) -> Decision {
    if request.is_upgrade {
        return Decision::Application;
    }
    let Some(target) = Target::decode(request.target) else { return Decision::Application };
    let Some((mapping, rest)) = tree.longest_prefix(target.path()) else {
        return Decision::Application;
    };
    let options = &mapping.options;
    if options.exclude {
        return Decision::Application;
    }
    if let Validation::Require(required) = &options.validation {
        if !required.is_met_by(request.headers.value(required.lower_name())) {
            return Decision::Refuse(StatusCode::FORBIDDEN);
        }
    }
    let miss = || {
        if options.fallthrough {
            Decision::Application
        } else {
            Decision::Refuse(StatusCode::BAD_REQUEST)
        }
    };
    if !matches!(request.method, "GET" | "HEAD") {
        return miss();
    }
    if !matches!(request.body, BodyFraming::Absent | BodyFraming::Length(0)) {
        return Decision::Refuse(StatusCode::BAD_REQUEST);
    }
    if target.is_hazardous() {
        return miss();
    }
    let path = join(&mapping.root, rest);
    Decision::Open(Lookup::new(Arc::clone(mapping), path, Conditions::of(request)))
}

/// `PathBuf::join` would let a `rest` with a leading `/` replace the root; `rest` has none, and this cannot.
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
