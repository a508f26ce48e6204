//! The error hooks of a thread: a linked list of scopes, the innermost first. The hook of the
//! innermost scope is current, that is, it receives the errors that the thread throws.
//!
//! Each scope is a [`Node`] of the list. There are two kinds of scopes:
//! - [`lend`] makes a hook current during one call, usually a poll of a future. The node is on the
//!   stack, and the caller keeps the hook's `Arc`. The call is cheap: it reads [`INNERMOST`] once,
//!   writes it twice, and changes no reference count.
//! - A [`HookGuard`] makes a hook current until the guard is dropped. The node is on the heap,
//!   together with an `Arc` of the hook.
//!
//! # Ground rules
//! Only the thread that made a node reads or writes it, and every node that can be reached from
//! [`INNERMOST`] is alive:
//! - When `lend` returns or panics, it removes its own node *and all nodes inside it*. Nodes inside
//!   it can only belong to guards that outlive their scope, because they are held across an
//!   `.await`, moved out of a closure, or forgotten. Their hooks are then no longer current, and
//!   their nodes are never followed again.
//! - A dropped guard removes its own node wherever it is in the list. If the node is not in the
//!   list, a `lend` has removed it.
//! - A forgotten guard leaks its node and its `Arc`, which therefore stay alive.
//! - A hook cannot be freed while it is called. The caller of a `lend` keeps the hook's `Arc` until
//!   the `lend` ends. The hook of a guard is called through a clone of its `Arc`.
//!
//! # Rules for other code
//! - C code that may `longjmp`, as R's does, must not be called from within a `lend`. A jump over
//!   the frame of a `lend` would leave a dead node in the list. (Such a jump is undefined behaviour
//!   for frames with destructors anyway.)
//! - A stackful coroutine must not be suspended within a `lend` (a poll of a wrapper, `with_hook`),
//!   and must not move to another thread with a guard. The list belongs to the thread and not to
//!   the coroutine's stack. While the coroutine is suspended, its hook would receive the errors of
//!   other code on the thread. If the coroutine's stack were freed, or the coroutine were resumed
//!   on another thread, the list would contain a dead node.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::ErrorHook;

thread_local! {
    // Without a destructor and with a `const` initial value, so that an access is one instruction
    // and never fails.
    static INNERMOST: Cell<Option<NonNull<Node>>> = const { Cell::new(None) };
}

/// A scope on this thread, in which an error hook is current. The scopes of a thread form a linked
/// list.
struct Node {
    /// The error hook of this scope. If it is `None`, no hook is current in this scope, even if an
    /// outer scope has one.
    hook: Option<NonNull<Arc<dyn ErrorHook>>>,
    owner: Owner,
    outside: Cell<Option<NonNull<Node>>>,
}

/// What keeps the error hook of a scope alive: the caller of a function, or a guard.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The caller of `lend` owns the hook, and keeps it alive until `lend` returns.
    Caller,
    /// A guard owns the hook. A method of the hook may drop this guard.
    Guard,
}

/// Calls `run` while `hook` is the thread's current error hook, and then restores the previous
/// hook.
#[inline]
pub(super) fn lend<R>(hook: Option<&Arc<dyn ErrorHook>>, run: impl FnOnce() -> R) -> R {
    let node = Node {
        hook: hook.map(NonNull::from),
        owner: Owner::Caller,
        outside: Cell::new(INNERMOST.get()),
    };
    // Declared after the node, and therefore dropped before it, also when `run` panics.
    let _restore = Restore(&node);
    INNERMOST.set(Some(NonNull::from(&node)));
    run()
}

struct Restore<'a>(&'a Node);

impl Drop for Restore<'_> {
    #[inline]
    fn drop(&mut self) {
        // Read again here, because the guard of the outer scope may have been dropped meanwhile.
        INNERMOST.set(self.0.outside.get());
    }
}

/// Calls `visitor` with the current error hook of this thread, if any.
pub(super) fn visit<R>(visitor: impl FnOnce(Option<&Arc<dyn ErrorHook>>) -> R) -> R {
    let Some(node) = INNERMOST.get() else { return visitor(None) };
    // SAFETY: a node that can be reached is alive (ground rules). The reference ends with this
    // block, before the visitor could end the node.
    let (hook, owner) = unsafe { (node.as_ref().hook, node.as_ref().owner) };
    let Some(hook) = hook else { return visitor(None) };
    match owner {
        Owner::Caller => {
            // SAFETY: the caller of `lend` keeps the `Arc` borrowed until `lend` ends, which
            // encloses this call.
            visitor(Some(unsafe { hook.as_ref() }))
        }
        Owner::Guard => {
            // SAFETY: the guard's scope is alive (ground rules), and so is its `Arc`. The visitor
            // may drop the guard, so it gets a clone.
            let hook = Arc::clone(unsafe { hook.as_ref() });
            visitor(Some(&hook))
        }
    }
}

/// A guard that keeps an error hook current on this thread until the guard is dropped. It is
/// returned by [`set_hook`](super::set_hook).
///
/// The guard owns its hook and cannot leave its thread:
/// ```compile_fail,E0277
/// # use std::sync::Arc;
/// # use rookery_error::*;
/// fn elsewhere(hook: Arc<dyn ErrorHook>) {
///     let guard = set_hook(hook);
///     std::thread::spawn(move || drop(guard));
/// }
/// ```
///
/// Guards may be dropped in any order. Each removes its own hook, and the innermost of the
/// remaining hooks is current. If a guard is forgotten, its hook stays current until the enclosing
/// [`with_hook`](super::with_hook) or poll of an [`ErrorHookFuture`](super::ErrorHookFuture) ends.
#[must_use = "the hook is in force only as long as the guard lives"]
pub struct HookGuard {
    /// The scope of the guard's error hook. The scope is in a box of its own. Because this is a raw
    /// pointer, the guard is neither `Send` nor `Sync`.
    scope: NonNull<GuardScope>,
}

#[repr(C)]
struct GuardScope {
    node: Node,
    hook: Arc<dyn ErrorHook>,
}

impl HookGuard {
    pub(super) fn new(hook: Arc<dyn ErrorHook>) -> HookGuard {
        let outside = Cell::new(INNERMOST.get());
        let node = Node { hook: None, owner: Owner::Guard, outside };
        let scope = Box::into_raw(Box::new(GuardScope { node, hook }));
        // SAFETY: the node was just made, and nothing else refers to it. From here on it is used
        // only through this pointer.
        unsafe { (*scope).node.hook = NonNull::new(&raw mut (*scope).hook) };
        // SAFETY: a box is not null.
        let scope = unsafe { NonNull::new_unchecked(scope) };
        INNERMOST.set(Some(scope.cast()));
        HookGuard { scope }
    }

    /// Returns true if the scope of this guard is still in the thread's list of scopes, whether its
    /// hook is current or not.
    fn is_listed(&self) -> bool {
        scopes().any(|node| node == self.scope.cast())
    }
}

impl Drop for HookGuard {
    fn drop(&mut self) {
        let node = self.scope.cast::<Node>();
        // SAFETY: the scope lives until the end of this function.
        let outside = unsafe { node.as_ref() }.outside.get();
        if INNERMOST.get() == Some(node) {
            INNERMOST.set(outside);
        } else {
            take_out(node, outside);
        }
        // SAFETY: the node came from a box, and no scope in the list refers to it any more.
        // Dropping it may run the hook's own `Drop`, for which the list is in a consistent state.
        drop(unsafe { Box::from_raw(self.scope.as_ptr()) });
    }
}

impl fmt::Debug for HookGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookGuard").field("listed", &self.is_listed()).finish()
    }
}

#[cold]
fn take_out(node: NonNull<Node>, outside: Option<NonNull<Node>>) {
    for inside in scopes() {
        // SAFETY: a node that can be reached is alive (ground rules).
        let inside = unsafe { inside.as_ref() };
        if inside.outside.get() == Some(node) {
            inside.outside.set(outside);
            return;
        }
    }
}

/// Returns an iterator over the scopes in which this thread has set an error hook, the innermost
/// first.
fn scopes() -> impl Iterator<Item = NonNull<Node>> {
    // SAFETY: a node that can be reached is alive (ground rules).
    std::iter::successors(INNERMOST.get(), |node| unsafe { node.as_ref() }.outside.get())
}

const _: () = assert!(std::mem::offset_of!(GuardScope, node) == 0);
