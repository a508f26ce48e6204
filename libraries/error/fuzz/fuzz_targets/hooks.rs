#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rookery_error_fuzz::error_hooks(data));
