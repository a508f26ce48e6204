//! Tests of the scoreboard in sealed memory, with a hostile worker.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;

use rookery_worker_protocol::{Scoreboard, SharedScoreboard, Tickets, now};

const SIZE: u64 = size_of::<Scoreboard>() as u64;

#[test]
fn a_hostile_worker_can_neither_truncate_the_memory_nor_write_unhandled_values() {
    let (scoreboard, memory) = SharedScoreboard::create().unwrap();
    let memory = File::from(memory);
    for len in [0, SIZE - 1, SIZE + 1] {
        assert_eq!(memory.set_len(len).unwrap_err().raw_os_error(), Some(libc::EPERM), "{len}");
    }
    // SAFETY: `fcntl` takes only numbers here.
    let sealed = unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) };
    assert_eq!(sealed, -1, "it could have kept itself from writing");
    let tickets = Tickets::new();
    let held: Vec<_> = std::iter::from_fn(|| tickets.take()).collect();
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    for round in 0..200 {
        let mut bytes = vec![0; SIZE as usize];
        for byte in &mut bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = if round % 3 == 0 { 0xFF } else { state as u8 };
        }
        memory.write_all_at(&bytes, 0).unwrap();
        let read = scoreboard.read();
        let _ = (
            read.queued(),
            read.pending(),
            read.elapsed(now()),
            read.is_idle(now()),
            read.busy_time(now()),
        );
        let _ = held.iter().filter(|held| scoreboard.has_begun(held.ticket())).count();
    }
    let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let size = libc::off_t::try_from(SIZE).unwrap();
    // SAFETY: the descriptor is open, and `fallocate` takes only numbers.
    let punched = unsafe { libc::fallocate(memory.as_raw_fd(), hole, 0, size) };
    assert_eq!(punched, 0);
    assert_eq!(scoreboard.read().taken, 0);
    assert!(!scoreboard.has_begun(held[0].ticket()));
}

/// Creates memory of this size with these bytes at its beginning and with these seals.
fn memory(size: u64, begin: &[u8], seals: libc::c_int) -> OwnedFd {
    // SAFETY: the name ends with a zero byte.
    let fd = unsafe {
        libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    };
    assert!(fd >= 0);
    // SAFETY: the descriptor has just been opened and belongs to nothing else.
    let memory = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    memory.set_len(size).unwrap();
    memory.write_all_at(begin, 0).unwrap();
    // SAFETY: `fcntl` takes only numbers here.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) }, 0);
    memory.into()
}

#[test]
fn a_worker_rejects_other_memory() {
    let all = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    let (scoreboard, real) = SharedScoreboard::create().unwrap();
    let mut sign = [0; 16];
    File::from(real.try_clone().unwrap()).read_exact_at(&mut sign, 0).unwrap();
    drop(scoreboard);
    let mut newer = sign;
    newer[8] += 1;
    for (what, memory) in [
        ("a file", OwnedFd::from(tempfile::tempfile().unwrap())),
        ("a device", File::open("/dev/null").unwrap().into()),
        ("not sealed", memory(SIZE, &sign, 0)),
        ("can be cut", memory(SIZE, &sign, all & !libc::F_SEAL_SHRINK)),
        ("can be unsealed", memory(SIZE, &sign, all & !libc::F_SEAL_SEAL)),
        ("shorter", memory(SIZE - 1, &sign, all)),
        ("longer", memory(SIZE + 1, &sign, all)),
        ("not signed", memory(SIZE, b"", all)),
        ("newer", memory(SIZE, &newer, all)),
    ] {
        let refused = SharedScoreboard::attach(&memory).expect_err(what);
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{what}");
    }
    SharedScoreboard::attach(&memory(SIZE, &sign, all)).unwrap();
    SharedScoreboard::attach(&real).unwrap();
}
