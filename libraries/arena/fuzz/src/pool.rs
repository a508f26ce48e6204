//! The fuzz target of pools, which compares them with a model.

use rookery_arena::{Pool, PoolLimits, Pooled, layout};

use super::Input;

/// What the pool should know about a key.
struct Known {
    key: u8,
    /// Identifies the entry, because another key can replace this one. Arenas of a replaced key do
    /// not count for the new one.
    id: usize,
    mark: usize,
}

struct InUse<'p> {
    arena: Pooled<'p, u8>,
    id: usize,
    /// The peak allocation of all periods of this use.
    peak: usize,
}

/// Runs a sequence of uses of a pool. Kept arenas must be within the limits, taken arenas must be
/// empty, and the high-water mark of each key must be that of its uses, each counted once.
pub fn arena_pool(data: &[u8]) {
    let mut input = Input(data);
    let limits = PoolLimits::default()
        .with_max_bytes(usize::from(input.byte()) * 1024)
        .with_max_arenas(usize::from(input.byte() % 8))
        .with_max_keys(usize::from(input.byte() % 6));
    let pool = Pool::with_limits(limits);
    let mut known: Vec<Known> = Vec::new();
    let mut in_use: Vec<InUse<'_>> = Vec::new();
    let mut ids = 0;
    while !input.0.is_empty() {
        let (operation, choice) = (input.byte(), usize::from(input.byte()));
        let at = choice % in_use.len().max(1);
        match operation % 8 {
            0 | 1 if in_use.len() < 8 => {
                let key = choice as u8 % 8;
                let arena = pool.take(key);
                assert!(
                    arena.is_empty() && arena.peak() == 0 && arena.allocation_limit().is_none()
                );
                match known.iter().position(|known| known.key == key) {
                    Some(place) => known[place..].rotate_left(1),
                    None => {
                        if known.len() >= limits.max_keys.max(1) {
                            known.remove(0);
                        }
                        ids += 1;
                        known.push(Known { key, id: ids, mark: 0 });
                    }
                }
                let id = known.last().expect("just put there").id;
                in_use.push(InUse { arena, id, peak: 0 });
            }
            2..=4 => {
                let Some(used) = in_use.get_mut(at) else { continue };
                let size = [choice, choice * 50, choice * 1000][usize::from(operation % 3)];
                if used.arena.try_alloc_slice_fill(size, operation).is_ok() {
                    used.peak = used.peak.max(used.arena.len());
                }
            }
            5 => {
                let Some(used) = in_use.get_mut(at) else { continue };
                used.arena.reset();
                assert!(used.arena.peak() == used.peak);
            }
            6 => {
                let Some(used) = in_use.get_mut(at) else { continue };
                let held = used.arena.capacity();
                used.arena.set_allocation_limit(Some(held + choice * 100));
            }
            7 if choice == 255 => {
                pool.clear();
                known.clear();
                assert_eq!((pool.arenas(), pool.bytes(), pool.keys()), (0, 0, 0));
            }
            _ => {
                if in_use.is_empty() {
                    continue;
                }
                let used = in_use.swap_remove(at);
                if let Some(known) = known.iter_mut().find(|known| known.id == used.id) {
                    known.mark = layout::decayed(known.mark, used.peak);
                }
                drop(used.arena);
            }
        }
        assert!(pool.bytes() <= limits.max_bytes && pool.arenas() <= limits.max_arenas);
        assert_eq!(pool.keys(), known.len());
        for known in &known {
            assert_eq!(pool.high_water(&known.key), Some(known.mark), "key {}", known.key);
        }
    }
    drop(in_use);
    assert!(pool.bytes() <= limits.max_bytes && pool.arenas() <= limits.max_arenas);
}
