#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rookery_fuzz::static_files::static_files_windows(data));
