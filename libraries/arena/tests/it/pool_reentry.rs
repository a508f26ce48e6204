//! Keys whose `Hash`, `Eq` and `Drop` use the pool that they are keys of.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};

use rookery_arena::{Pool, PoolLimits};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Hash,
    Eq,
    Drop,
}

const MOMENTS: [Moment; 3] = [Moment::Hash, Moment::Eq, Moment::Drop];

/// The action of a key, and when it takes place.
type Act = fn(&Pool<Key>, &Rc<Script>);

struct Script {
    pool: Weak<Pool<Key>>,
    moment: Moment,
    act: Act,
    /// The number of times that the action took place. It does not take place within itself, which
    /// would not end.
    acts: Cell<u32>,
    is_acting: Cell<bool>,
}

impl Script {
    fn play(script: &Rc<Script>, moment: Moment) {
        let Some(pool) = script.pool.upgrade() else { return };
        if script.moment == moment && !script.is_acting.replace(true) {
            script.acts.set(script.acts.get() + 1);
            (script.act)(&pool, script);
            script.is_acting.set(false);
        }
    }
}

struct Key(u8, Rc<Script>);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Script::play(&self.1, Moment::Hash);
        // All hashes are equal, so that the pool compares the keys.
        state.write_u8(0);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        Script::play(&self.1, Moment::Eq);
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Drop for Key {
    fn drop(&mut self) {
        Script::play(&self.1, Moment::Drop);
    }
}

fn look(pool: &Pool<Key>, script: &Rc<Script>) {
    let found = pool.high_water(&Key(1, Rc::clone(script)));
    assert!(found.is_none_or(|bytes| bytes <= 4000));
    assert!(pool.keys() <= 3 && pool.arenas() <= 4 && pool.bytes() <= 100_000);
    assert!(format!("{pool:?}").starts_with("Pool"));
}

fn take(pool: &Pool<Key>, script: &Rc<Script>) {
    for key in [1, 7, 8] {
        let arena = pool.take(Key(key, Rc::clone(script)));
        assert!(arena.is_empty());
        arena.alloc_uninit::<[u8; 1000]>();
    }
}

fn clear(pool: &Pool<Key>, _: &Rc<Script>) {
    pool.clear();
}

fn use_pool(pool: &Pool<Key>, key: impl Fn(u8) -> Key) {
    for round in 0..3u64 {
        for number in 0..5 {
            let (one, two) = (pool.take(key(number)), pool.take(key(number)));
            one.alloc_uninit::<[u8; 3000]>();
            two.alloc(round);
            assert!(pool.high_water(&key(number)).is_none_or(|bytes| bytes <= 4000));
        }
        if round == 1 {
            pool.clear();
        }
    }
}

#[test]
fn a_key_may_use_its_pool_whenever_the_pool_calls_it() {
    for moment in MOMENTS {
        for act in [look as Act, take, clear] {
            let limits =
                PoolLimits::default().with_max_keys(3).with_max_arenas(4).with_max_bytes(100_000);
            let pool = Rc::new(Pool::with_limits(limits));
            let (acts, is_acting) = (Cell::new(0), Cell::new(false));
            let script =
                Rc::new(Script { pool: Rc::downgrade(&pool), moment, act, acts, is_acting });
            use_pool(&pool, |number| Key(number, Rc::clone(&script)));
            assert!(script.acts.get() > 0, "{moment:?}");
            assert!(pool.keys() <= 3 && pool.arenas() <= 4 && pool.bytes() <= 100_000);
            pool.clear();
            // A key that `clear` has dropped may have made another.
            assert!(pool.keys() <= 3 && pool.bytes() <= 100_000);
        }
    }
}

#[test]
fn a_pool_survives_a_key_that_panics() {
    for moment in MOMENTS {
        let pool = Rc::new(Pool::with_limits(PoolLimits::default().with_max_keys(2)));
        let (acts, is_acting) = (Cell::new(0), Cell::new(false));
        let act: Act = |_, _| std::panic::resume_unwind(Box::new("key"));
        let script = Rc::new(Script { pool: Rc::downgrade(&pool), moment, act, acts, is_acting });
        let key = |number| Key(number, Rc::clone(&script));
        let mut panics = 0;
        for number in [1, 1, 2, 3] {
            let used = catch_unwind(AssertUnwindSafe(|| drop(pool.take(key(number)))));
            panics += u32::from(used.is_err());
            script.is_acting.set(false);
        }
        assert!(panics > 0, "{moment:?}");
        // From here on the key does nothing.
        script.is_acting.set(true);
        pool.take(key(4)).alloc(1u8);
        assert!(pool.arenas() > 0 && pool.keys() <= 2);
    }
}

#[test]
fn keys_with_the_same_hash_are_distinguished() {
    #[derive(PartialEq, Eq)]
    struct Alike(&'static str);
    impl Hash for Alike {
        fn hash<H: Hasher>(&self, _: &mut H) {}
    }
    let pool = Pool::new();
    pool.take(Alike("large")).alloc_uninit::<[u8; 50_000]>();
    pool.take(Alike("small")).alloc_uninit::<[u8; 10]>();
    assert_eq!(pool.high_water(&Alike("large")), Some(50_000));
    assert_eq!(pool.high_water(&Alike("small")), Some(10));
    assert_eq!(pool.high_water(&Alike("none")), None);
}
