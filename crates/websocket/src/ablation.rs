//! For the benchmark only: what coder/websocket's pull requests 565 and 566 took out, put back.

/// A cleanup closure and the error that it names, both on the heap, made and run for each frame.
#[cfg(feature = "ablation-closure")]
pub(crate) struct Cleanup {
    run: Option<Box<dyn FnOnce()>>,
    _failed: std::rc::Rc<std::cell::RefCell<Option<String>>>,
}

#[cfg(feature = "ablation-closure")]
impl Cleanup {
    pub(crate) fn new() -> Cleanup {
        let failed = std::rc::Rc::new(std::cell::RefCell::new(None));
        let seen = std::rc::Rc::clone(&failed);
        let run = Box::new(move || drop(seen.borrow_mut().take()));
        Cleanup { run: Some(std::hint::black_box(run)), _failed: failed }
    }
}

#[cfg(feature = "ablation-closure")]
impl Drop for Cleanup {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            run();
        }
    }
}

/// A timer that is registered when a read of the transport begins, and taken out again when it is done.
#[cfg(feature = "ablation-timer")]
#[derive(Debug, Default)]
pub(crate) struct ReadTimer(Option<std::pin::Pin<Box<tokio::time::Sleep>>>);

#[cfg(feature = "ablation-timer")]
impl ReadTimer {
    /// One that no read of the benchmark runs into.
    const DEADLINE: std::time::Duration = std::time::Duration::from_secs(30);

    pub(crate) fn begin(&mut self, cx: &mut std::task::Context<'_>) {
        if self.0.is_none() {
            let timer = self.0.insert(Box::pin(tokio::time::sleep(Self::DEADLINE)));
            let _ = timer.as_mut().poll(cx);
        }
    }

    pub(crate) fn end(&mut self) {
        self.0 = None;
    }
}
