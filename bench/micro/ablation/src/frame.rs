//! A masked 64-byte message decoded and its echo encoded, without sockets.

use std::cell::RefCell;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use rookery_websocket::protocol::{Decoder, Event, Limits, MaskKey, OpCode, Role, encode_frame};

use crate::meter::{Case, repeat};

/// A deadline that no read of these runs into.
pub const DEADLINE: Duration = Duration::from_secs(30);

struct Echo {
    decoder: Decoder,
    request: Vec<u8>,
    input: Vec<u8>,
    out: Vec<u8>,
}

impl Echo {
    fn new() -> Echo {
        let mut request = Vec::new();
        encode_frame(&mut request, OpCode::Text, true, Some(MaskKey([1, 2, 3, 4])), &[b'x'; 64]);
        let decoder = Decoder::new(Role::Server, Limits::default());
        Echo { decoder, input: request.clone(), request, out: Vec::with_capacity(256) }
    }

    fn once(&mut self) -> usize {
        // The decoder unmasks in place, so each turn begins with the bytes as the peer sent them.
        self.input.copy_from_slice(black_box(&self.request));
        self.out.clear();
        let (_, event) = self.decoder.decode(&mut self.input).expect("a valid frame");
        let Some(Event::Text(payload)) = event else { panic!("a whole message") };
        encode_frame(&mut self.out, OpCode::Text, true, None, payload.as_bytes());
        self.out.len()
    }
}

/// What coder/websocket PR 565 took out: a cleanup closure and the error it names, both on the heap, per frame.
pub struct Cleanup {
    run: Option<Box<dyn FnOnce()>>,
    pub failed: Rc<RefCell<Option<String>>>,
}

impl Cleanup {
    pub fn new() -> Cleanup {
        let failed = Rc::new(RefCell::new(None));
        let seen = Rc::clone(&failed);
        let run = Box::new(move || {
            if let Some(error) = seen.borrow_mut().take() {
                eprintln!("{error}");
            }
        });
        Cleanup { run: Some(black_box(run)), failed }
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            run();
        }
    }
}

pub fn cases() -> Vec<Case> {
    let case = |peer, what, run| Case { scenario: "frame", peer, what, run };
    vec![
        case("ours", "decode and encode", |n| {
            let mut echo = Echo::new();
            repeat(n, || echo.once())
        }),
        case("closure", "with a cleanup closure per frame", |n| {
            let mut echo = Echo::new();
            repeat(n, || {
                let cleanup = Cleanup::new();
                let length = echo.once();
                assert!(cleanup.failed.borrow().is_none());
                length
            })
        }),
        case("timer", "with a timer armed and dropped per read", |n| {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
            let _entered = runtime.enter();
            let mut echo = Echo::new();
            let mut cx = Context::from_waker(Waker::noop());
            repeat(n, || {
                let mut timer = pin!(tokio::time::sleep(DEADLINE));
                assert!(timer.as_mut().poll(&mut cx).is_pending());
                echo.once()
            })
        }),
    ]
}
