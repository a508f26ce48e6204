//! Values in an arena that have an owner.

use std::fmt::Display;
use std::rc::Rc;

use rookery_arena::Arena;
use rookery_arena::collections::Box;

#[test]
fn a_value_is_dropped_with_its_box_unless_it_is_leaked() {
    let arena = Arena::new();
    let value = Rc::new(7);
    let boxed = Box::new_in(Rc::clone(&value), &arena);
    assert_eq!((Rc::strong_count(&value), **boxed), (2, 7));
    drop(boxed);
    assert_eq!(Rc::strong_count(&value), 1);

    let leaked = Box::leak(Box::new_in(Rc::clone(&value), &arena));
    assert_eq!(Rc::strong_count(&value), 2);
    // SAFETY: the value came from a box that no longer owns it.
    drop(unsafe { Box::from_mut(leaked) });
    assert_eq!(Rc::strong_count(&value), 1);
}

#[test]
fn boxes_own_trait_objects() {
    let arena = Arena::new();
    let value = Rc::new("rook");
    let object = Box::leak(Box::new_in(Rc::clone(&value), &arena));
    // SAFETY: the value came from a box that no longer owns it.
    let object: Box<dyn Display> = unsafe { Box::from_mut(object) };
    assert_eq!(object.to_string(), "rook");
    drop(object);
    assert_eq!(Rc::strong_count(&value), 1);
}

/// A box may move to another thread, because it does not use the arena.
#[test]
fn a_box_may_move_to_another_thread() {
    let arena = Arena::new();
    let boxed = Box::new_in(std::string::String::from("there"), &arena);
    std::thread::scope(|scope| _ = scope.spawn(move || assert_eq!(*boxed, "there")));
}
