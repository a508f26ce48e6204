//! A server in a process of its own, and its costs.

use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub struct Server {
    child: Child,
    pub port: u16,
}

impl Server {
    pub fn start(contender: &str, deflates: bool) -> io::Result<Server> {
        let mut command = command(contender, deflates)?;
        // Independent of the variables of a developer's shell.
        command.env_remove("RUST_BACKTRACE").env("GOMAXPROCS", "1");
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it was asked for")).read_line(&mut line)?;
        let port = line
            .trim()
            .parse()
            .map_err(|_| io::Error::other(format!("{contender} printed {line:?} as its port")))?;
        Ok(Server { child, port })
    }

    /// Returns the CPU time of all its threads in ns.
    pub fn cpu_time(&self) -> io::Result<u64> {
        let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
        // SAFETY: `clock` is valid for writing.
        let found = unsafe { libc::clock_getcpuclockid(self.child.id() as i32, &raw mut clock) };
        // SAFETY: `time` is valid for writing.
        if found != 0 || unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    pub fn resident_bytes(&self) -> io::Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
        kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("no VmRSS"))
    }

    pub fn pin(&self, core: usize) -> io::Result<()> {
        pin(self.child.id() as i32, core)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Pins a process to one core.
pub fn pin(pid: i32, core: usize) -> io::Result<()> {
    // SAFETY: an all-zero set is empty.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `core` is less than the size of the set.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: `set` is valid for reading of the given size.
    let result = unsafe { libc::sched_setaffinity(pid, size_of_val(&set), &raw const set) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn command(contender: &str, deflates: bool) -> io::Result<Command> {
    let argument = if deflates { "deflate" } else { "plain" };
    let mut command = match contender {
        "coder" | "coder-read" => Command::new(coder()?),
        "ws" => {
            let mut node = Command::new("node");
            node.arg(ws()?);
            node
        }
        _ => {
            let mut this = Command::new(std::env::current_exe()?);
            this.args(["serve", contender]);
            this
        }
    };
    command.arg(argument);
    if contender == "coder-read" {
        command.arg("read");
    }
    Ok(command)
}

/// Returns the server in Go, which is built at its first use.
pub fn coder() -> io::Result<PathBuf> {
    let target = std::env::current_exe()?.with_file_name("rookery-bench-websocket-coder");
    let source = folder().join("coder");
    if !is_current(&target, &source.join("main.go")) {
        run(Command::new("go").args(["build", "-o"]).arg(&target).arg(".").current_dir(source))?;
    }
    Ok(target)
}

/// Returns the server in JavaScript, which is installed at its first use.
pub fn ws() -> io::Result<PathBuf> {
    let source = folder().join("node");
    if !source.join("node_modules/ws").exists() {
        let mut npm = Command::new("npm");
        run(npm
            .args(["ci", "--no-audit", "--no-fund"])
            .current_dir(&source)
            .stdout(Stdio::null()))?;
    }
    Ok(source.join("server.mjs"))
}

fn is_current(target: &Path, source: &Path) -> bool {
    let modified = |path: &Path| path.metadata().and_then(|data| data.modified());
    matches!((modified(target), modified(source)), (Ok(target), Ok(source)) if target > source)
}

fn run(command: &mut Command) -> io::Result<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{command:?}: {status}"))) }
}
