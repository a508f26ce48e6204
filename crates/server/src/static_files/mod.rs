//! Files served without the application.
#[derive(Debug, Clone, Default)]
pub struct StaticFiles;
impl StaticFiles {
    pub fn is_empty(&self) -> bool {
        true
    }
}
