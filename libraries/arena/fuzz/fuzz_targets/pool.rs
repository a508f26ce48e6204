#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rookery_arena_fuzz::arena_pool(data));
