//! Size, niche and auto traits.

use std::panic::{RefUnwindSafe, UnwindSafe};

use rookery_error::{Error, ErrorHookFuture, ErrorId, HookGuard, StaticError};

use crate::Failure;

const WORD: usize = size_of::<usize>();

#[test]
fn an_error_is_one_word_and_leaves_room_for_a_niche() {
    assert_eq!(size_of::<Error>(), WORD);
    assert_eq!(size_of::<Option<Error>>(), WORD);
    assert_eq!(size_of::<Result<(), Error>>(), WORD);
    assert_eq!(size_of::<ErrorId>(), WORD);
}

#[test]
fn auto_traits() {
    fn has<T: Send + Sync + Unpin + UnwindSafe + RefUnwindSafe + Clone + 'static>() {}
    fn shared<T: Send + Sync>() {}
    fn unpin<T: Unpin>() {}
    fn ordered<T: Copy + Ord>() {}
    has::<Error>();
    ordered::<ErrorId>();
    shared::<StaticError<Failure>>();
    shared::<ErrorHookFuture<std::future::Ready<()>>>();
    unpin::<ErrorHookFuture<std::future::Ready<()>>>();
}

/// `Lacks::<A>::of::<T>` is ambiguous and does not compile if `T` has the trait. If it compiles,
/// `T` lacks the trait.
macro_rules! assert_lacks {
    ($type:ty: $bound:path) => {
        const _: fn() = || {
            trait Lacks<A> {
                fn of() {}
            }
            impl<T: ?Sized> Lacks<()> for T {}
            struct Has;
            impl<T: ?Sized + $bound> Lacks<Has> for T {}
            <$type as Lacks<_>>::of()
        };
    };
}

assert_lacks!(HookGuard: Send);
assert_lacks!(HookGuard: Sync);
assert_lacks!(ErrorHookFuture<std::marker::PhantomPinned>: Unpin);
assert_lacks!(ErrorHookFuture<std::rc::Rc<()>>: Send);

/// The object begins after two words, wherever its alignment places it.
#[test]
fn alignment_of_the_object_is_kept() {
    #[derive(Debug)]
    #[repr(align(64))]
    struct Wide(u8);
    impl std::fmt::Display for Wide {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fmt(f)
        }
    }
    impl std::error::Error for Wide {}
    static WIDE: StaticError<Wide> = StaticError::new(Wide(8));

    for error in [Error::new(Wide(8)), Error::from_static_error(&WIDE)] {
        let wide = error.downcast_ref::<Wide>().expect("it is one");
        assert_eq!(std::ptr::from_ref(wide).addr() % 64, 0);
        assert_eq!(wide.0, 8);
    }
    let boxed = Error::new(Wide(9)).into_boxed();
    assert_eq!(boxed.downcast::<Wide>().expect("it is one").0, 9);
}

#[test]
fn zero_sized_errors() {
    let error = Error::new(std::fmt::Error);
    assert!(error.is::<std::fmt::Error>() && error.clone().is::<std::fmt::Error>());
    assert!(error.into_boxed().is::<std::fmt::Error>());
}

#[test]
fn clones_on_many_threads() {
    let error = Error::new(Failure("shared", None)).context("over threads");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let clone = error.clone();
                    assert!(clone.is::<Failure>());
                }
            });
        }
    });
    assert!(error.into_boxed().source().is_some());
}
