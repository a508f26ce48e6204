//! What a rejection costs on its way to its request's hook: no allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use rookery_error::{Delivery, ErrorHook, Reports, with_hook};
use rookery_server::Rejection;

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
fn a_rejection_is_built_thrown_and_queued_without_allocating() {
    let reports = Arc::new(Reports::<Rejection>::new());
    reports.set_delivery(Delivery::Queue);
    let request = reports.hook();
    let hook: Arc<dyn ErrorHook> = Arc::clone(&request) as _;
    let all = [
        Rejection::Unreadable,
        Rejection::Host,
        Rejection::HeadTimeout,
        Rejection::BodyTooLarge,
        Rejection::HeadTooLarge,
        Rejection::Busy,
        Rejection::Application,
        Rejection::DiskFull,
    ];
    for (id, rejection) in (1..).zip(all) {
        let before = ALLOCATIONS.get();
        request.begin(id);
        with_hook(&hook, || rookery_error::throw(rejection.error()));
        let spent = ALLOCATIONS.get() - before;
        assert_eq!(spent, 0, "{rejection:?}");
        let report = reports.take().unwrap();
        assert_eq!((report.request, report.error.downcast_ref()), (id, Some(&rejection)));
    }
}
