//! The fuzz target of the files of R's profiler, which a worker has written.

use rookery_status::JoinedProfile;

/// The maximum size of a joined file in this target, which long inputs exceed.
const MAX_SIZE: usize = 4096;

/// Checks that the files of several workers, which the byte 0xFF separates, are joined to a file
/// that is not too large and that is read as it was written.
pub fn rprof(data: &[u8]) {
    let mut joined = JoinedProfile::new(10_000, MAX_SIZE);
    let added: Vec<_> = data.split(|byte| *byte == 0xFF).map(|file| joined.add(file)).collect();
    let (text, summary) = joined.finish();
    assert!(text.len() <= MAX_SIZE && text.ends_with(b"\n"));
    assert_eq!(summary.samples, added.iter().map(|it| it.samples).sum::<u64>());
    assert!(summary.routes.iter().map(|(_, samples)| samples).sum::<u64>() == summary.samples);
    for function in summary.by_self.iter().chain(&summary.by_total) {
        assert!(function.own <= function.total && function.total <= summary.samples);
    }
    let mut again = JoinedProfile::new(10_000, MAX_SIZE);
    let read = again.add(&text);
    assert!(read.malformed == 0 && !read.is_cut && read.samples == summary.samples);
    let (copy, same) = again.finish();
    assert_eq!((copy, same), (text, summary));
}
