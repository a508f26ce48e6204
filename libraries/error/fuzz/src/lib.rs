//! The fuzz target of the error hooks of a thread in `rookery-error`.

#![allow(clippy::disallowed_methods, reason = "a fuzz target may panic")]

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use rookery_error::{
    Error, ErrorHook, ErrorHookFuture, ErrorId, HookGuard, current_hook, set_hook, throw,
    with_hook_option,
};

/// Runs a sequence of scopes, guards that end in any order, and polls. After each step the current
/// hook must be the one of a model.
pub fn error_hooks(data: &[u8]) {
    let hooks: Vec<Arc<dyn ErrorHook>> =
        (1..=HOOKS).map(|number| Arc::new(Numbered(number)) as Arc<dyn ErrorHook>).collect();
    let mut program = Program { rest: data, hooks: &hooks, scopes: Vec::new(), ids: 0 };
    program.run(0);
    // Guards can outlive every scope and the list itself, in this order or in reverse.
    let mut left = GUARDS.take();
    if data.first().is_some_and(|first| first & 1 == 1) {
        left.reverse();
    }
    for (id, guard) in left {
        drop(guard);
        program.scopes.retain(|scope| scope.id != id);
        program.check();
    }
    assert!(current_hook().is_none());
    assert!(hooks.iter().all(|hook| Arc::strong_count(hook) == 1), "a hook is still held");
}

const HOOKS: usize = 5;

/// The maximum depth of nested scopes, because each takes several stack frames.
const DEEPEST: usize = 30;

thread_local! {
    /// The live guards, which hooks may end.
    static GUARDS: RefCell<Vec<(usize, HookGuard)>> = const { RefCell::new(Vec::new()) };
    /// The guard that the next call of a hook ends, which may be its own.
    static ENDS: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A hook that returns its number.
struct Numbered(usize);

impl ErrorHook for Numbered {
    fn throw(&self, _: Error) -> ErrorId {
        if let Some(at) = ENDS.take() {
            let (_, guard) = GUARDS.with_borrow_mut(|guards| guards.swap_remove(at));
            drop(guard);
        }
        ErrorId::from(self.0)
    }

    fn clear(&self, _: &ErrorId) {}
}

/// A scope of the model. The last one determines the current hook.
struct Scope {
    id: usize,
    /// The number of the hook, or `None` if there is no current hook.
    hook: Option<usize>,
}

struct Program<'a> {
    rest: &'a [u8],
    hooks: &'a [Arc<dyn ErrorHook>],
    scopes: Vec<Scope>,
    ids: usize,
}

impl Program<'_> {
    fn run(&mut self, depth: usize) {
        while let [operation, rest @ ..] = self.rest {
            self.rest = rest;
            let choice = usize::from(operation >> 3);
            let number = choice % HOOKS + 1;
            match operation & 7 {
                0 | 1 => {
                    let guard = set_hook(Arc::clone(&self.hooks[number - 1]));
                    let id = self.enter(Some(number));
                    GUARDS.with_borrow_mut(|guards| guards.push((id, guard)));
                }
                2 => {
                    let ended = GUARDS.with_borrow_mut(|guards| {
                        (!guards.is_empty()).then(|| guards.swap_remove(choice % guards.len()))
                    });
                    if let Some((id, guard)) = ended {
                        drop(guard);
                        self.scopes.retain(|scope| scope.id != id);
                    }
                }
                // A hook that ends a guard during its call.
                3 => {
                    let at = GUARDS.with_borrow(|guards| {
                        (!guards.is_empty())
                            .then(|| (choice % guards.len(), guards[choice % guards.len()].0))
                    });
                    let expected = self.in_force();
                    if let (Some((at, id)), Some(_)) = (at, expected) {
                        ENDS.set(Some(at));
                        assert_eq!(throw("an error"), ErrorId::from(expected.unwrap_or_default()));
                        self.scopes.retain(|scope| scope.id != id);
                    }
                }
                4 if depth < DEEPEST => {
                    let hook = (choice < 24).then_some(number);
                    self.within(hook, depth, |program, run| {
                        with_hook_option(hook.map(|number| &program.hooks[number - 1]), run)
                    });
                }
                5 if depth < DEEPEST => {
                    // The future captures the current hook, and the poll sets it again.
                    let hook = self.in_force();
                    self.within(hook, depth, |_, run| {
                        let mut run = Some(run);
                        let mut future = pin!(ErrorHookFuture::new(async move {
                            if let Some(run) = run.take() {
                                run();
                            }
                        }));
                        let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                        assert!(polled.is_ready());
                    });
                }
                // The end of a scope, with all guards that were created within it.
                6 if depth > 0 => return,
                _ => {}
            }
            self.check();
        }
    }

    /// Runs the next operations within a scope that `enter` creates.
    fn within(
        &mut self,
        hook: Option<usize>,
        depth: usize,
        enter: impl FnOnce(&Program<'_>, &mut dyn FnMut()),
    ) {
        let id = self.enter(hook);
        let outer = Program { rest: &[], hooks: self.hooks, scopes: Vec::new(), ids: 0 };
        enter(&outer, &mut || {
            self.check();
            self.run(depth + 1);
        });
        // All scopes within it end with it.
        let at = self
            .scopes
            .iter()
            .position(|scope| scope.id == id)
            .expect("a scope of the caller's stays");
        self.scopes.truncate(at);
    }

    fn enter(&mut self, hook: Option<usize>) -> usize {
        self.ids += 1;
        self.scopes.push(Scope { id: self.ids, hook });
        self.ids
    }

    fn in_force(&self) -> Option<usize> {
        self.scopes.last().and_then(|scope| scope.hook)
    }

    fn check(&self) {
        assert_eq!(throw("an error"), ErrorId::from(self.in_force().unwrap_or_default()));
        assert_eq!(current_hook().is_some(), self.in_force().is_some());
    }
}
