//! A substitute for the file operations of `nonblocking_file` on operating systems that cannot read
//! files without waiting for a disk. Every operation fails with [`WouldBlock`].

use std::fs::File;

use super::file_state::{FileState, Kind, WouldBlock};

pub(crate) fn look(_: &[u8]) -> Result<Option<(Kind, FileState)>, WouldBlock> {
    Err(WouldBlock)
}

pub(crate) fn open(_: &[u8]) -> Result<Option<(File, Kind, FileState)>, WouldBlock> {
    Err(WouldBlock)
}

pub(crate) fn read(_: &File, _: &mut [u8], _: u64) -> Result<(), WouldBlock> {
    Err(WouldBlock)
}

pub(crate) fn is_local(_: &File) -> bool {
    false
}

pub(crate) fn is_resident(_: &File, _: u64, _: usize) -> Result<bool, WouldBlock> {
    Err(WouldBlock)
}
