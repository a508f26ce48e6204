//! What deciding about static files costs requests that the application answers: no memory.

mod counting;

use http::HeaderMap;
use rookery_server::static_files::{BodyFraming, Decision, Overrides, RequestHead, StaticFiles, StaticPath};

use crate::counting::allocations;

#[test]
fn requests_for_the_application_allocate_nothing() {
    let files = StaticFiles::new();
    let headers = HeaderMap::new();
    let decide = |target: &str| {
        let body = BodyFraming::Absent;
        let request = RequestHead {
            method: "GET",
            target: target.as_bytes(),
            is_upgrade: false,
            body,
            headers: &headers,
        };
        let before = allocations();
        let decision = files.decide(&request);
        (decision, allocations() - before)
    };
    let targets = ["/", "/api/items/17?x=%20", "/a%20b/c%C3%A9", "/static/private/x", "/lib/../x"];
    for target in targets {
        assert!(matches!(decide(target), (Decision::Application, 0)), "{target}");
    }
    let exclude = Overrides { exclude: Some(true), ..Overrides::default() };
    let fallthrough = Overrides { fallthrough: Some(true), ..Overrides::default() };
    files
        .set([
            ("/static".into(), StaticPath { path: "/srv".into(), overrides: Overrides::default() }),
            ("/static/private".into(), StaticPath { path: "".into(), overrides: exclude }),
            ("/lib".into(), StaticPath { path: "/srv".into(), overrides: fallthrough }),
        ])
        .unwrap();
    // The first look of a thread at a snapshot makes the thread's own slot for it.
    decide("/");
    for target in targets {
        assert!(matches!(decide(target), (Decision::Application, 0)), "{target}");
    }
    let (decision, allocations) = decide("/static/a.js");
    assert!(matches!(decision, Decision::Open(_)));
    assert_eq!(allocations, 1, "the path to open, which shows that the count counts");
}
