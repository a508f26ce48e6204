//! What deciding about static files costs requests that the application answers: no memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use http::HeaderMap;
use rookery_server::static_files::{BodyFraming, Decision, Overrides, RequestHead, StaticFiles, StaticPath};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches a `Cell` without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's duties are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's duties are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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
        let before = ALLOCATIONS.get();
        let decision = files.decide(&request);
        (decision, ALLOCATIONS.get() - before)
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
