//! A program as so many worker processes: they come to the coordinator by themselves, and die with this process.

use std::{
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use crate::stage::{Cause, Ended};

/// What workers are started with, beside the coordinator's address and their index.
#[derive(Clone, Debug)]
pub struct WorkerProgram {
    /// The program's own file.
    pub program: OsString,
    /// Arguments of all of them.
    pub arguments: Vec<OsString>,
    /// On top of our own environment. A secret belongs here, where `ps` doesn't show it.
    pub env: Vec<(OsString, OsString)>,
}

impl WorkerProgram {
    /// This program itself.
    ///
    /// # Errors
    /// When its own file can't be found.
    pub fn this() -> io::Result<Self> {
        let program = std::env::current_exe()?.into_os_string();
        Ok(Self { program, arguments: Vec::new(), env: Vec::new() })
    }
}

/// Workers that run. Dropping them ends them.
#[derive(Debug)]
pub(crate) struct Workers(Vec<Child>);

impl Workers {
    /// Starts so many for a coordinator. Limits, CPUs and standard error are ours.
    pub(crate) fn start(program: &WorkerProgram, count: u32, coordinator: &str, token: &str) -> io::Result<Self> {
        let mut workers = Self(Vec::new());
        for index in 0..count {
            let mut command = Command::new(&program.program);
            command
                .args(&program.arguments)
                .args(["--coordinator", coordinator, "--worker", &index.to_string()])
                .envs(program.env.iter().map(|(name, value)| (name, value)))
                .env("COORDINATOR_TOKEN", token)
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            die_with(&mut command, getpid());
            workers.0.push(command.spawn()?);
        }
        Ok(workers)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// How one ended; absent while all run.
    pub(crate) fn ended(&mut self) -> Option<Ended> {
        self.0.iter_mut().enumerate().find_map(|(index, worker)| {
            let status = worker.try_wait().ok().flatten()?;
            Some(Ended { words: format!("worker {index} ended ({status})"), cause: Cause::Itself })
        })
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            // One that is gone needs no signal.
            let _ = worker.kill();
        }
        for worker in &mut self.0 {
            let _ = worker.wait();
        }
    }
}

/// Ctrl-C reaches all processes of a terminal, another signal only the parent: then the kernel ends its workers.
fn die_with(command: &mut Command, parent: Pid) {
    let work = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the line above: then nobody will ever tell.
        if getppid() != Some(parent) { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    };
    // SAFETY: the closure makes two system calls (prctl, getppid) and nothing else: no allocation, no locks, nothing that a
    // fork of a threaded process could have left half-done. Error values from the system carry no heap.
    unsafe { command.pre_exec(work) };
}
