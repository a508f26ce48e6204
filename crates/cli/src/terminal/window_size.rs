//! The size of the terminal.

/// The number of rows that is assumed if the terminal does not know it.
const DEFAULT: usize = 24;

/// Returns the number of rows of the terminal on standard output.
pub(crate) fn rows_of_stdout() -> usize {
    system_rows().filter(|rows| *rows > 0).unwrap_or(DEFAULT)
}

#[cfg(unix)]
fn system_rows() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: `size` is a valid winsize to write to.
    let result = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (result == 0).then(|| size.ws_row.into())
}

#[cfg(windows)]
fn system_rows() -> Option<usize> {
    use std::os::windows::io::AsRawHandle as _;
    use windows_sys::Win32::System::Console::{
        CONSOLE_SCREEN_BUFFER_INFO, GetConsoleScreenBufferInfo,
    };
    let mut info = CONSOLE_SCREEN_BUFFER_INFO::default();
    let console = std::io::stdout().as_raw_handle();
    // SAFETY: `info` is valid for writes. The call fails for a handle that is no console.
    if unsafe { GetConsoleScreenBufferInfo(console, &raw mut info) } == 0 {
        return None;
    }
    let window = info.srWindow;
    usize::try_from(i32::from(window.Bottom) - i32::from(window.Top) + 1).ok()
}
