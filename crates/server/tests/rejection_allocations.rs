//! A rejection allocates nothing on its way to the error hook of its request.

use std::sync::Arc;

use rookery_error::{Delivery, ErrorHook, Reports, with_hook};
use rookery_server::Rejection;
use rookery_test_support::allocator::{self, CountingAllocator};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

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
        let before = allocator::thread::allocations();
        request.begin(id);
        with_hook(&hook, || rookery_error::throw(rejection.error()));
        let spent = allocator::thread::allocations() - before;
        assert_eq!(spent, 0, "{rejection:?}");
        let report = reports.take().unwrap();
        assert_eq!((report.request, report.error.downcast_ref()), (id, Some(&rejection)));
    }
}
