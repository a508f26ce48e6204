//! The fuzz target of the arena for several threads. The interleaving depends on the machine, and
//! every property holds in all of them.

use std::alloc::Layout;

use rookery_arena::{Growth, SyncArena};

use super::{Input, Live};

/// Runs periods in each of which two threads allocate concurrently. No byte may be allocated twice,
/// written bytes must stay, and limits must hold. If bit 0 of the first byte is set, one thread
/// does the work of both in succession.
pub fn arena_sync(data: &[u8]) {
    let mut input = Input(data);
    let choice = input.byte();
    let growth = match choice >> 1 & 3 {
        0 => Growth::default(),
        1 => Growth::new(usize::from(input.byte()), 4096),
        _ => Growth::fixed(1024 * usize::from(1 + input.byte() % 32)),
    };
    let mut arena = SyncArena::with_growth(growth);
    let mut peak = 0;
    while !input.0.is_empty() {
        let (ending, limit) = (input.byte(), usize::from(input.byte()) * 4096);
        arena.set_allocation_limit((limit != 0).then_some(limit.max(arena.capacity())));
        let (now, later) = input.0.split_at(input.0.len().min(90));
        input.0 = later;
        let (one, two) = now.split_at(now.len() / 2);
        let mut live: Vec<Live> = if choice & 1 == 1 {
            let mut live = allocate(&arena, one, 1);
            live.extend(allocate(&arena, two, 101));
            live
        } else {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| allocate(&arena, two, 101));
                let mut live = allocate(&arena, one, 1);
                live.extend(other.join().expect("no property fails there"));
                live
            })
        };
        live.iter().for_each(Live::check);
        live.retain(|live| live.layout.size() > 0);
        live.sort_unstable_by_key(|live| live.start);
        let end = |live: &Live| live.start.addr().get() + live.layout.size();
        assert!(
            live.windows(2).all(|pair| end(&pair[0]) <= pair[1].start.addr().get()),
            "two overlap"
        );
        let requested: usize = live.iter().map(|live| live.layout.size()).sum();
        peak = peak.max(arena.len());
        assert!(
            arena.len() >= requested && arena.capacity() >= arena.len() && arena.peak() == peak
        );
        assert!(
            arena.allocation_limit().is_none_or(|limit| arena.capacity() <= limit),
            "{arena:?}"
        );
        match ending % 4 {
            0 => {
                arena.release();
                peak = 0;
                assert_eq!((arena.capacity(), arena.chunks()), (0, 0));
            }
            _ => arena.reset(),
        }
        assert!(arena.is_empty() && arena.peak() == peak);
    }
}

// SAFETY: one thread writes the memory before it passes the value on, and afterwards it is only
// read.
unsafe impl Send for Live {}

fn allocate(arena: &SyncArena, data: &[u8], mark: u8) -> Vec<Live> {
    let mut input = Input(data);
    let mut live = Vec::new();
    while !input.0.is_empty() {
        let scale = [16, 64, 512, 8192, 70_000][usize::from(input.byte() % 5)];
        let size = (usize::from(input.byte()) << 8 | usize::from(input.byte())) % scale;
        let layout = Layout::from_size_align(size, 1 << (input.byte() % 13)).expect("small");
        if let Ok(start) = arena.try_alloc_layout(layout) {
            live.push(Live { start, layout, mark: mark + live.len() as u8 }.fill(0));
        }
    }
    live
}
