//! The arenas under comparison, behind one trait. All methods are inlined, so that only the arena
//! is measured.

use std::alloc::Layout;
use std::ptr::NonNull;

use bump_scope::traits::BumpAllocatorTyped;
use rookery_arena::{Arena, Growth};

pub(crate) trait Contender {
    fn make() -> Self;
    fn alloc(&self, layout: Layout) -> NonNull<u8>;
    /// Allocates 64 bytes aligned to 8.
    fn alloc_block(&self) -> NonNull<Block>;
    fn reset(&mut self);
}

pub(crate) type Block = [u64; 8];

/// Our arena with its default growth.
pub(crate) struct Ours(Arena);

impl Contender for Ours {
    fn make() -> Self {
        Ours(Arena::new())
    }

    #[inline(always)]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.0.alloc_layout(layout)
    }

    #[inline(always)]
    fn alloc_block(&self) -> NonNull<Block> {
        NonNull::from(self.0.alloc_uninit::<Block>()).cast()
    }

    fn reset(&mut self) {
        self.0.reset();
    }
}

/// Our arena with chunks of 32 KiB, the size of go-arena's buffers.
pub(crate) struct OursFixed(Arena);

impl Contender for OursFixed {
    fn make() -> Self {
        OursFixed(Arena::with_growth(Growth::fixed(32 * 1024)))
    }

    #[inline(always)]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.0.alloc_layout(layout)
    }

    #[inline(always)]
    fn alloc_block(&self) -> NonNull<Block> {
        NonNull::from(self.0.alloc_uninit::<Block>()).cast()
    }

    fn reset(&mut self) {
        self.0.reset();
    }
}

pub(crate) struct Bumpalo(bumpalo::Bump);

impl Contender for Bumpalo {
    fn make() -> Self {
        Bumpalo(bumpalo::Bump::new())
    }

    #[inline(always)]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.0.alloc_layout(layout)
    }

    #[inline(always)]
    fn alloc_block(&self) -> NonNull<Block> {
        self.0.alloc_layout(Layout::new::<Block>()).cast()
    }

    fn reset(&mut self) {
        self.0.reset();
    }
}

pub(crate) struct BumpScope(bump_scope::Bump);

impl Contender for BumpScope {
    fn make() -> Self {
        BumpScope(bump_scope::Bump::new())
    }

    #[inline(always)]
    fn alloc(&self, layout: Layout) -> NonNull<u8> {
        self.0.allocate_layout(layout)
    }

    #[inline(always)]
    fn alloc_block(&self) -> NonNull<Block> {
        self.0.allocate_sized()
    }

    fn reset(&mut self) {
        self.0.reset();
    }
}
