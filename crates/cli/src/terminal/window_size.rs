//! The size of the terminal.

/// The size that is assumed if the terminal does not know it.
const DEFAULT: (usize, usize) = (80, 24);

/// Returns the number of columns and rows of the terminal on standard output.
pub(crate) fn of_stdout() -> (usize, usize) {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: `size` is a valid winsize to write to.
    let result = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    if result != 0 || size.ws_col == 0 || size.ws_row == 0 {
        return DEFAULT;
    }
    (size.ws_col.into(), size.ws_row.into())
}
