//! A worker process as the supervisor sees it: its lifecycle, its warm-up and its end.

mod exited_worker;
mod log_timer;
mod output_tasks;
mod warmup;
mod worker_name;
mod worker_process;

pub(crate) use exited_worker::ExitedWorker;
pub(crate) use log_timer::LogTimer;
pub(crate) use output_tasks::OutputTasks;
pub(crate) use warmup::WarmupResult;
pub(crate) use worker_name::{WorkerName, counted};
pub(crate) use worker_process::{WorkerEvent, WorkerPhase, WorkerProcess};
