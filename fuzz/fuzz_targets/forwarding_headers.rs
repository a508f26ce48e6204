#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rookery_fuzz::forwarding_headers::forwarding_headers(
    data
));
