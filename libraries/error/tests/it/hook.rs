//! Hooks: scopes, guards, futures, and the effects of their misuse.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use rookery_error::{
    Error, ErrorHook, ErrorHookFuture, ErrorId, HookGuard, clear, current_hook, set_hook, throw,
    with_hook, with_hook_option,
};

use crate::Count;

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns true if `hook` is the current one.
fn in_force(hook: &Arc<dyn ErrorHook>) -> bool {
    current_hook().is_some_and(|current| Arc::ptr_eq(&current, hook))
}

/// A hook that calls a function when an error is thrown, and then counts.
struct Once<F>(Mutex<Option<F>>, AtomicUsize);

impl<F: FnOnce() + Send> Once<F> {
    fn new(run: F) -> Once<F> {
        Once(Mutex::new(Some(run)), AtomicUsize::new(0))
    }
}

impl<F: FnOnce() + Send> ErrorHook for Once<F> {
    fn throw(&self, _: Error) -> ErrorId {
        let run = self.0.lock().expect("not poisoned").take();
        if let Some(run) = run {
            run();
        }
        // Counted last: the hook has to be alive after the call of `run`.
        ErrorId::from(1 + self.1.fetch_add(1, Ordering::Relaxed))
    }

    fn clear(&self, _: &ErrorId) {}
}

#[test]
fn without_a_hook() {
    struct Never;
    impl From<Never> for Error {
        fn from(_: Never) -> Error {
            panic!("converted for nobody")
        }
    }
    assert!(current_hook().is_none());
    assert_eq!(throw(Never), ErrorId::default());
    clear(&ErrorId::default());
    assert_eq!(
        poll(pin!(ErrorHookFuture::new(poll_fn(|_| Poll::Ready(throw("unheard")))))),
        Poll::Ready(ErrorId::default())
    );
}

#[test]
fn throw_and_clear_reach_the_hook() {
    let (count, hook) = Count::new();
    with_hook(&hook, || {
        assert_eq!(throw("one"), ErrorId::from(1));
        assert_eq!(throw(Error::from_static(&"two")), ErrorId::from(2));
        clear(&ErrorId::from(2));
    });
    throw("outside");
    assert_eq!((count.thrown(), count.cleared.load(Ordering::Relaxed)), (2, 1));
    assert_eq!(ErrorId::from(2).to_string(), "2");
    assert_eq!(usize::from(ErrorId::from(2)), 2);
}

#[test]
fn scopes_nest() {
    let ((outer, outer_hook), (inner, inner_hook)) = (Count::new(), Count::new());
    with_hook(&outer_hook, || {
        with_hook(&inner_hook, || throw("inner"));
        throw("outer");
        with_hook_option(None, || {
            assert!(current_hook().is_none());
            throw("nobody")
        });
        let guard = set_hook(inner_hook.clone());
        throw("inner");
        drop(guard);
        throw("outer");
    });
    assert_eq!((outer.thrown(), inner.thrown()), (2, 2));
}

#[test]
fn a_panic_restores_the_hook() {
    let (_, outer) = Count::new();
    let (_, inner) = Count::new();
    with_hook(&outer, || {
        let panic = || with_hook(&inner, || resume_unwind(Box::new(())));
        catch_unwind(AssertUnwindSafe(panic)).expect_err("it panics");
        assert!(in_force(&outer));

        let mut future = Box::pin(ErrorHookFuture::with_hook(
            Some(inner.clone()),
            poll_fn(|_| -> Poll<()> {
                assert!(in_force(&inner));
                resume_unwind(Box::new(()))
            }),
        ));
        catch_unwind(AssertUnwindSafe(|| poll(future.as_mut()))).expect_err("it panics");
        assert!(in_force(&outer));

        let guarded = || {
            let _guard = set_hook(inner.clone());
            resume_unwind(Box::new(()))
        };
        catch_unwind(AssertUnwindSafe(guarded)).expect_err("it panics");
        assert!(in_force(&outer));
    });
    assert!(current_hook().is_none());
}

#[test]
fn a_panic_in_the_hook_restores_the_hook() {
    let hook: Arc<dyn ErrorHook> = Arc::new(Once::new(|| resume_unwind(Box::new(()))));
    catch_unwind(AssertUnwindSafe(|| with_hook(&hook, || throw("boom")))).expect_err("it panics");
    assert!(current_hook().is_none());
    let guard = set_hook(hook.clone());
    assert_eq!(Arc::strong_count(&hook), 2);
    assert_eq!(throw("fine"), ErrorId::from(1));
    drop(guard);
    assert_eq!(Arc::strong_count(&hook), 1);
}

#[test]
fn a_future_has_its_hook_in_every_poll_and_only_there() {
    let ((own, own_hook), (ambient, ambient_hook)) = (Count::new(), Count::new());
    let mut polls = 0;
    let future = with_hook(&own_hook, || {
        ErrorHookFuture::new(poll_fn(|_| {
            throw("from the future");
            polls += 1;
            if polls == 3 { Poll::Ready(()) } else { Poll::Pending }
        }))
    });
    assert!(future.hook().is_some_and(|hook| Arc::ptr_eq(hook, &own_hook)));
    let mut future = pin!(future);
    with_hook(&ambient_hook, || {
        while poll(future.as_mut()).is_pending() {
            throw("between");
            assert!(in_force(&ambient_hook));
        }
    });
    assert_eq!((own.thrown(), ambient.thrown()), (3, 2));
}

#[test]
fn a_captured_none_clears_the_ambient_hook() {
    let (ambient, hook) = Count::new();
    let mut future = pin!(ErrorHookFuture::new(poll_fn(|_| {
        assert!(current_hook().is_none());
        throw("nobody");
        Poll::Ready(())
    })));
    with_hook(&hook, || {
        assert!(poll(future.as_mut()).is_ready());
        throw("ambient");
    });
    assert_eq!(ambient.thrown(), 1);
}

#[test]
fn polls_nest() {
    let ((outer, outer_hook), (inner, inner_hook)) = (Count::new(), Count::new());
    let mut inside = Box::pin(ErrorHookFuture::with_hook(
        Some(inner_hook),
        poll_fn(|_| Poll::Ready(throw("inner"))),
    ));
    let outside = poll_fn(move |cx| {
        throw("before");
        let polled = inside.as_mut().poll(cx);
        throw("after");
        polled
    });
    let outside = ErrorHookFuture::with_hook(Some(outer_hook), outside);
    assert_eq!(poll(pin!(outside)), Poll::Ready(ErrorId::from(1)));
    assert_eq!((outer.thrown(), inner.thrown()), (2, 1));
    assert!(current_hook().is_none());
}

#[test]
fn a_future_takes_its_hook_to_other_threads() {
    let (count, hook) = Count::new();
    let mut polls = 0;
    let mut future = Box::pin(ErrorHookFuture::with_hook(
        Some(hook.clone()),
        poll_fn(move |_| {
            throw("wherever");
            polls += 1;
            if polls == 5 { Poll::Ready(()) } else { Poll::Pending }
        }),
    ));
    while poll(future.as_mut()).is_pending() {
        let moved = move || {
            let (ambient, ambient_hook) = Count::new();
            let _guard = set_hook(ambient_hook.clone());
            let _ = poll(future.as_mut());
            assert!(in_force(&ambient_hook));
            assert_eq!(ambient.thrown(), 0);
            future
        };
        future = std::thread::spawn(moved).join().expect("the thread's assertions hold");
        assert!(current_hook().is_none());
    }
    assert_eq!(count.thrown(), 5);
    drop(future);
    assert_eq!(Arc::strong_count(&hook), 2);
}

#[test]
fn a_poll_counts_no_reference() {
    let (count, hook) = Count::new();
    drop(count);
    let watched = hook.clone();
    let future = poll_fn(move |_| {
        // The references of the test, of this closure and of the wrapper.
        assert_eq!(Arc::strong_count(&watched), 3);
        throw("even while thrown to");
        Poll::Ready(Arc::strong_count(&watched))
    });
    let mut future = pin!(ErrorHookFuture::with_hook(Some(hook.clone()), future));
    assert_eq!(Arc::strong_count(&hook), 3);
    assert_eq!(poll(future.as_mut()), Poll::Ready(3));
    assert_eq!(Arc::strong_count(&hook), 3);
    with_hook(&hook, || assert_eq!(Arc::strong_count(&hook), 3));
}

#[test]
fn a_throw_to_a_lent_hook_counts_no_reference() {
    struct Watch(Mutex<Option<std::sync::Weak<Watch>>>, AtomicUsize);
    impl ErrorHook for Watch {
        fn throw(&self, _: Error) -> ErrorId {
            let watch = self.0.lock().expect("not poisoned");
            let count = watch.as_ref().expect("set below").strong_count();
            self.1.store(count, Ordering::Relaxed);
            ErrorId::from(count)
        }
        fn clear(&self, _: &ErrorId) {}
    }
    let watch = Arc::new(Watch(Mutex::default(), AtomicUsize::new(0)));
    *watch.0.lock().expect("not poisoned") = Some(Arc::downgrade(&watch));
    let hook: Arc<dyn ErrorHook> = watch.clone();
    assert_eq!(with_hook(&hook, || throw("lent")), ErrorId::from(2));
    let guard = set_hook(hook.clone());
    assert_eq!(throw("guarded"), ErrorId::from(4), "the guard's, and one for the call");
    drop(guard);
}

#[test]
fn a_hook_may_throw_to_itself() {
    let (count, next) = Count::new();
    let reenter: Arc<dyn ErrorHook> = Arc::new(Once::new(|| {
        assert_eq!(throw("again, to itself"), ErrorId::from(1));
    }));
    assert_eq!(with_hook(&reenter, || throw("first")), ErrorId::from(2));
    let reenter: Arc<dyn ErrorHook> = Arc::new(Once::new(move || {
        with_hook(&next, || throw("to another"));
        let _guard = set_hook(next.clone());
        throw("to another");
    }));
    assert_eq!(with_hook(&reenter, || throw("first")), ErrorId::from(1));
    assert_eq!(count.thrown(), 2);
    assert!(current_hook().is_none());
}

thread_local! {
    static KEPT: RefCell<Option<HookGuard>> = const { RefCell::new(None) };
}

/// The hook drops the guard that keeps it alive, and has to live until its method returns.
#[test]
fn a_hook_may_end_its_own_guard() {
    let hook: Arc<dyn ErrorHook> = Arc::new(Once::new(|| {
        drop(KEPT.take().expect("kept"));
        assert!(current_hook().is_none());
    }));
    let weak = Arc::downgrade(&hook);
    KEPT.set(Some(set_hook(hook)));
    assert_eq!(throw("farewell"), ErrorId::from(1));
    assert!(weak.upgrade().is_none());
    assert_eq!(throw("nobody"), ErrorId::default());
}

#[test]
fn a_hook_may_replace_itself() {
    let (count, next) = Count::new();
    let replaced: Arc<dyn ErrorHook> = Arc::new(Once::new(move || {
        // The old guard ends when the new one is already current.
        let guard = set_hook(next.clone());
        drop(KEPT.replace(Some(guard)));
    }));
    KEPT.set(Some(set_hook(replaced)));
    throw("to the first");
    throw("to the second");
    assert_eq!(count.thrown(), 1);
    drop(KEPT.take());
    assert!(current_hook().is_none());
}

/// The destructor of a hook runs when its scope has ended.
#[test]
fn a_hook_may_throw_from_its_destructor() {
    struct Last(Arc<dyn ErrorHook>);
    impl ErrorHook for Last {
        fn throw(&self, _: Error) -> ErrorId {
            ErrorId::default()
        }
        fn clear(&self, _: &ErrorId) {}
    }
    impl Drop for Last {
        fn drop(&mut self) {
            assert!(in_force(&self.0));
            throw("last words");
        }
    }
    let (count, outer) = Count::new();
    with_hook(&outer, || drop(set_hook(Arc::new(Last(outer.clone())))));
    assert_eq!(count.thrown(), 1);
}

#[test]
fn guards_in_any_order() {
    let hooks: Vec<_> = (0..4).map(|_| Count::new().1).collect();
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1], [0, 3, 1, 2]] {
        let mut guards: Vec<_> = hooks.iter().map(|hook| Some(set_hook(hook.clone()))).collect();
        for dropped in order {
            guards[dropped] = None;
            let innermost = guards.iter().rposition(Option::is_some);
            match innermost {
                Some(innermost) => {
                    assert!(in_force(&hooks[innermost]), "{order:?}, after {dropped}");
                }
                None => assert!(current_hook().is_none()),
            }
        }
    }
    assert!(hooks.iter().all(|hook| Arc::strong_count(hook) == 1));
}

/// A guard in a thread local is dropped after everything else of its thread.
#[test]
fn a_guard_that_lives_as_long_as_its_thread() {
    let (count, hook) = Count::new();
    let watched = hook.clone();
    let thread = std::thread::spawn(move || {
        KEPT.set(Some(set_hook(hook)));
        throw("while it lives");
    });
    thread.join().expect("the thread's end does not panic");
    assert_eq!(count.thrown(), 1);
    assert_eq!(Arc::strong_count(&watched), 2);
}

/// The inner scope must not restore the hook of a guard that has been dropped meanwhile.
#[test]
fn an_outer_guard_dropped_in_an_inner_scope() {
    let (_, hook) = Count::new();
    let guard = set_hook(hook.clone());
    with_hook_option(None, move || drop(guard));
    assert!(current_hook().is_none());
    assert_eq!(Arc::strong_count(&hook), 1);

    let guard = set_hook(hook.clone());
    let mut slot = Some(guard);
    let mut future = pin!(ErrorHookFuture::with_hook(
        None,
        poll_fn(|_| {
            drop(slot.take());
            Poll::Ready(())
        }),
    ));
    assert!(poll(future.as_mut()).is_ready());
    assert!(current_hook().is_none());
}

/// A guard is held across an `.await`, and the ambient hook is restored after the poll all the
/// same.
#[test]
fn a_guard_that_outlives_its_scope_is_no_longer_current() {
    let (count, inner) = Count::new();
    let (ambient, outer) = Count::new();
    with_hook(&outer, || {
        let kept = with_hook_option(None, || {
            let guards = (set_hook(inner.clone()), set_hook(inner.clone()));
            throw("inside");
            guards
        });
        assert!(in_force(&outer));
        throw("outside");
        assert_eq!(format!("{:?}", kept.0), "HookGuard { listed: false }");
        let later = set_hook(inner.clone());
        assert_eq!(format!("{later:?}"), "HookGuard { listed: true }");
        drop(kept);
        assert!(in_force(&inner));
        drop(later);
        assert!(in_force(&outer));
    });
    assert_eq!((count.thrown(), ambient.thrown()), (1, 1));

    let held = async {
        let _guard = set_hook(inner.clone());
        let mut first = true;
        poll_fn(|_| if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }).await;
    };
    let mut held = pin!(ErrorHookFuture::new(held));
    assert!(poll(held.as_mut()).is_pending());
    assert!(current_hook().is_none());
    assert!(poll(held.as_mut()).is_ready());
    assert!(current_hook().is_none());
}

/// Does what `mem::forget` does, but drops the guard at the end, because Miri would rightly report
/// a leak.
#[test]
fn forgetting_a_guard_is_harmless() {
    let (count, hook) = Count::new();
    let mut forgotten = ManuallyDrop::new(set_hook(hook.clone()));
    drop(hook);
    throw("still in force");
    let (_, other) = Count::new();
    with_hook(&other, || throw("to the other"));
    throw("still in force");
    assert_eq!(count.thrown(), 2);
    // SAFETY: dropped once, here.
    unsafe { ManuallyDrop::drop(&mut forgotten) };
    assert!(current_hook().is_none());

    let mut forgotten = with_hook(&other, || ManuallyDrop::new(set_hook(other.clone())));
    assert!(current_hook().is_none());
    // SAFETY: dropped once, here.
    unsafe { ManuallyDrop::drop(&mut forgotten) };
    assert!(current_hook().is_none());
}

/// Leaks a hook and nothing else when a future is forgotten half-way.
#[test]
fn forgetting_a_future_is_harmless() {
    let (count, hook) = Count::new();
    let mut future = ManuallyDrop::new(Box::pin(ErrorHookFuture::with_hook(
        Some(hook),
        poll_fn(|_| {
            throw("once");
            Poll::<()>::Pending
        }),
    )));
    assert!(poll(future.as_mut()).is_pending());
    assert!(current_hook().is_none());
    throw("nobody");
    assert_eq!(count.thrown(), 1);
    // SAFETY: dropped once, here.
    unsafe { ManuallyDrop::drop(&mut future) };
}

#[test]
fn debug_says_whether_there_is_a_hook() {
    let future = ErrorHookFuture::new(std::future::ready(1));
    assert_eq!(format!("{future:?}"), "ErrorHookFuture { hooked: false, inner: Ready(Some(1)) }");
}
