//! A rejection allocates nothing on its way to the error hook of its request, and neither does its
//! response, unless the client wants a page.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use rookery_error::{Delivery, ErrorHook, Reports, with_hook};
use rookery_exchange::Exchange;
use rookery_server::static_files::{StaticFiles, StaticPath};
use rookery_server::{Config, ListenerConfig, Rejection, Server};
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

#[test]
fn error_responses_allocate_nothing_unless_the_client_wants_a_page() {
    allocator::process::exclude_current_thread();
    let files = StaticFiles::new();
    let folder = tempfile::tempdir().unwrap();
    let path = StaticPath { path: folder.path().into(), ..StaticPath::default() };
    files.set([("/files".to_owned(), path)]).unwrap();
    // 99 is not a valid status, so the server rejects the request in place of the application.
    let server = Server::with_closure_and_echo(Config::default(), |exchange: &mut Exchange| {
        exchange.begin_response(99);
    });
    let site = ListenerConfig { files, ..ListenerConfig::default() };
    let listener = server.listen_tcp("127.0.0.1:0".parse().unwrap(), site).unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    socket.set_nodelay(true).unwrap();
    let mut ask = |target: &str, accept: &str, times: usize| {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n");
        let before = allocator::process::allocations();
        for _ in 0..times {
            socket.write_all(request.as_bytes()).unwrap();
            let (mut reply, mut got) = ([0; 4096], 0);
            while !reply[..got].ends_with(b"\n")
                || !reply[..got].windows(4).any(|at| at == b"\r\n\r\n")
            {
                got += socket.read(&mut reply[got..]).unwrap();
            }
        }
        allocator::process::allocations() - before
    };
    // Windows has names of files in UTF-16, and their conversion allocates.
    let targets: &[&str] = if cfg!(windows) { &["/app"] } else { &["/files/none", "/app"] };
    for target in targets {
        for accept in ["*/*", "image/avif,image/webp,*/*;q=0.8", "text/html;q=0"] {
            ask(target, accept, 200);
            let spent = ask(target, accept, 1000);
            // The clock and the timer wheel may allocate now and then.
            assert!(spent <= 32, "{target} {accept}: {spent} allocations in 1,000");
        }
        assert!(ask(target, "text/html", 1000) >= 1000, "the count counts");
    }
}
