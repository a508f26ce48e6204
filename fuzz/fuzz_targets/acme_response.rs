#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rookery_fuzz::acme::acme_response(data));
