//! The hooks in force on a thread: a list of scopes, innermost first.
//!
//! A scope is a [`Node`]: that of [`lend`] lies in its stack frame and refers to an `Arc` that the caller keeps, that
//! of a [`HookGuard`] lies on the heap beside an `Arc` of its own. So the most frequent use, a poll, is one read of
//! the thread's cell and two writes, and nothing is counted.
//!
//! # Ground rules
//! Only the thread that made a node reads or writes it, and every node that can be reached from [`INNERMOST`] is alive:
//! - `lend` takes its own node out when it ends, however it ends, *together with all inside it*. Those can only be of
//!   guards that outlive their scope (held across an `.await`, moved out of a closure, or forgotten): their hooks
//!   are no longer in force, and their nodes are never followed again.
//! - A guard that is dropped takes out its own node wherever it is. If it is not found, a `lend` did so already.
//! - A forgotten guard leaks its node and its `Arc`: whoever still reaches it finds it alive.
//! - A hook is called under a reference that nothing the hook does can end: the scope of a `lend` encloses the call, and
//!   of a guard's `Arc` a clone is held.
//! - Whoever jumps over the frame of a `lend` without unwinding it (C's `longjmp`) leaves a dead node behind. That is
//!   undefined behaviour for frames with destructors anyway; where C can jump, as in R, call Rust from C and not
//!   the other way round.

//! - The list belongs to the thread, not to a stack. A stackful coroutine that is suspended within a `lend` leaves its node
//!   in the list: whatever the thread runs meanwhile throws to the coroutine's hook, and the `lend`s of two coroutines that
//!   do not end in the order opposite to that they began in put back a node of the other. If that one's stack is
//!   gone by then, or if the coroutine is resumed on another thread, a dead node is followed. So a hook does not follow a
//!   stackful coroutine: none may be switched within a `lend` (a poll of a wrapper, `with_hook`), nor moved with a guard.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::ErrorHook;

thread_local! {
    // Without a destructor and with a `const` start, so that an access is one instruction and never fails.
    static INNERMOST: Cell<Option<NonNull<Node>>> = const { Cell::new(None) };
}

/// One scope.
struct Node {
    /// The hook; `None` means that none is in force, whatever is outside.
    hook: Option<NonNull<Arc<dyn ErrorHook>>>,
    owner: Owner,
    outside: Cell<Option<NonNull<Node>>>,
}

/// Who keeps the hook of a scope alive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The caller of `lend`, until that ends.
    Caller,
    /// A guard, which the hook itself may drop.
    Guard,
}

/// Runs `run` with `hook` in force, and the hook before afterwards.
#[inline]
pub(super) fn lend<R>(hook: Option<&Arc<dyn ErrorHook>>, run: impl FnOnce() -> R) -> R {
    let node = Node {
        hook: hook.map(NonNull::from),
        owner: Owner::Caller,
        outside: Cell::new(INNERMOST.get()),
    };
    // Declared after the node, so dropped before it, also when `run` panics.
    let _restore = Restore(&node);
    INNERMOST.set(Some(NonNull::from(&node)));
    run()
}

struct Restore<'a>(&'a Node);

impl Drop for Restore<'_> {
    #[inline]
    fn drop(&mut self) {
        // Not what was read at the start: that scope's guard may have been dropped since.
        INNERMOST.set(self.0.outside.get());
    }
}

/// Calls `visitor` with the hook in force.
pub(super) fn visit<R>(visitor: impl FnOnce(Option<&Arc<dyn ErrorHook>>) -> R) -> R {
    let Some(node) = INNERMOST.get() else { return visitor(None) };
    // SAFETY: a node that is reached is alive (ground rules); the reference ends with this statement block, before
    // the visitor could end the node.
    let (hook, owner) = unsafe { (node.as_ref().hook, node.as_ref().owner) };
    let Some(hook) = hook else { return visitor(None) };
    match owner {
        Owner::Caller => {
            // SAFETY: the caller of `lend` keeps the `Arc` borrowed until `lend` ends, and it encloses this call.
            visitor(Some(unsafe { hook.as_ref() }))
        }
        Owner::Guard => {
            // SAFETY: the guard's scope is alive (ground rules), so its `Arc` is. The visitor may drop the guard, so
            // that it gets a clone.
            let hook = Arc::clone(unsafe { hook.as_ref() });
            visitor(Some(&hook))
        }
    }
}

/// Keeps a hook in force on this thread until dropped: made by [`set_hook`](super::set_hook).
///
/// It owns its hook, and cannot leave its thread:
/// ```compile_fail,E0277
/// # use std::sync::Arc;
/// # use rookery_error::*;
/// fn elsewhere(hook: Arc<dyn ErrorHook>) {
///     let guard = set_hook(hook);
///     std::thread::spawn(move || drop(guard));
/// }
/// ```
///
/// Guards may be dropped in any order: each takes out its own hook, and the innermost of those left is in force. One
/// that is forgotten stays in force until the enclosing [`with_hook`](super::with_hook) or poll ends.
#[must_use = "the hook is in force only as long as the guard lives"]
pub struct HookGuard {
    /// From a box. A raw pointer also makes the guard neither `Send` nor `Sync`.
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
        // SAFETY: just made, and nobody else knows of it. From here on it is only used by way of this pointer.
        unsafe { (*scope).node.hook = NonNull::new(&raw mut (*scope).hook) };
        // SAFETY: a box is not at null.
        let scope = unsafe { NonNull::new_unchecked(scope) };
        INNERMOST.set(Some(scope.cast()));
        HookGuard { scope }
    }

    /// Whether the guard's hook is still in the list, be it in force or behind others.
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
        // SAFETY: it came from a box, and no scope in the list refers to it any more. Dropping it may run the hook's
        // own `Drop`, which finds the list in order.
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
        // SAFETY: a node that is reached is alive (ground rules).
        let inside = unsafe { inside.as_ref() };
        if inside.outside.get() == Some(node) {
            inside.outside.set(outside);
            return;
        }
    }
}

/// The nodes of this thread, innermost first.
fn scopes() -> impl Iterator<Item = NonNull<Node>> {
    // SAFETY: a node that is reached is alive (ground rules).
    std::iter::successors(INNERMOST.get(), |node| unsafe { node.as_ref() }.outside.get())
}

const _: () = assert!(std::mem::offset_of!(GuardScope, node) == 0);
