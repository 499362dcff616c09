//! Starts a program as worker processes. They connect to the coordinator by themselves and end with this process.

use std::{
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use crate::{
    coordinator::Coordinator,
    stage::{Cause, Ended},
};

/// How workers are started, in addition to the coordinator's address and their index.
#[derive(Clone, Debug)]
pub struct WorkerProgram {
    /// Path of the program.
    pub program: OsString,
    /// Arguments of all workers.
    pub arguments: Vec<OsString>,
    /// Environment variables in addition to this process's own. Secrets belong here, because `ps` shows arguments.
    pub env: Vec<(OsString, OsString)>,
}

impl WorkerProgram {
    /// The running program itself, without arguments.
    ///
    /// # Errors
    /// An [`io::Error`] if the path of its executable can't be found.
    pub fn this() -> io::Result<Self> {
        let program = std::env::current_exe()?.into_os_string();
        Ok(Self { program, arguments: Vec::new(), env: Vec::new() })
    }
}

/// Running worker processes. Dropping this ends them.
#[derive(Debug)]
pub(crate) struct Workers(Vec<Child>);

impl Workers {
    /// Starts `count` workers for a coordinator. They inherit the limits, CPUs and standard error of this process.
    pub(crate) fn start(program: &WorkerProgram, count: u32, coordinator: &Coordinator) -> io::Result<Self> {
        let mut workers = Self(Vec::new());
        for index in 0..count {
            let mut command = Command::new(&program.program);
            command
                .args(&program.arguments)
                .args(["--coordinator", &coordinator.url(), "--worker", &index.to_string()])
                .envs(program.env.iter().map(|(name, value)| (name, value)))
                .env("COORDINATOR_TOKEN", coordinator.token().reveal())
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            kill_with_parent(&mut command, getpid());
            workers.0.push(command.spawn()?);
        }
        Ok(workers)
    }

    /// The number of worker processes that were started.
    pub(crate) fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// How a worker ended; absent while all run.
    pub(crate) fn ended(&mut self) -> Option<Ended> {
        self.0.iter_mut().enumerate().find_map(|(index, worker)| {
            let status = worker.try_wait().ok().flatten()?;
            Some(Ended { description: format!("worker {index} ended ({status})"), cause: Cause::Itself })
        })
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            // Killing a process that has ended fails harmlessly.
            let _ = worker.kill();
        }
        for worker in &mut self.0 {
            let _ = worker.wait();
        }
    }
}

/// Ends the worker with its parent. Ctrl-C reaches all processes of a terminal, but another signal reaches only the
/// parent; then the kernel ends the workers.
fn kill_with_parent(command: &mut Command, parent: Pid) {
    let work = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the call above; the kernel then sends no signal.
        if getppid() != Some(parent) { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    };
    // SAFETY: the closure makes two system calls (prctl, getppid) and nothing else: no allocation, no locks, nothing
    // that a fork of a threaded process could have left half-done. Error values from the system carry no heap.
    unsafe { command.pre_exec(work) };
}
