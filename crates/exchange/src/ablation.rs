//! For the benchmark only: what the arena saves, put back. Each field of a head is allocated, and freed after its request.

/// Stands where the arena does for the fields of a head.
#[derive(Debug, Default)]
pub(crate) struct Fields(Vec<Vec<u8>>);

impl Fields {
    pub(crate) fn alloc_slice_copy(&mut self, bytes: &[u8]) -> &mut [u8] {
        self.push(bytes.to_vec())
    }

    pub(crate) fn alloc_slice_fill(&mut self, len: usize, byte: u8) -> &mut [u8] {
        self.push(vec![byte; len])
    }

    pub(crate) fn reset(&mut self) {
        self.0.clear();
    }

    fn push(&mut self, field: Vec<u8>) -> &mut [u8] {
        self.0.push(field);
        self.0.last_mut().map_or(&mut [], Vec::as_mut_slice)
    }
}
