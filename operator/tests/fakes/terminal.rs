//! A pseudo terminal in which `ladder` runs, and what it shows.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{FromRawFd, OwnedFd},
    process::{Child, Command, ExitStatus},
    ptr::null_mut,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
};

use super::wait_for;

/// A process whose three streams are one pseudo terminal.
pub struct Terminal {
    pub child: Child,
    keyboard: File,
    output: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    /// Starts the command in a terminal of so many columns.
    pub fn start(mut command: Command, columns: u16) -> Self {
        let (terminal, process) = open(columns);
        command.stdin(process.try_clone().unwrap()).stdout(process.try_clone().unwrap()).stderr(process);
        command.env("TERM", "xterm").env_remove("NO_COLOR");
        let child = command.spawn().unwrap();
        // The end of the output is seen only when no descriptor of the process's side is left here.
        drop(command);
        let keyboard = File::from(terminal);
        let mut screen = keyboard.try_clone().unwrap();
        let output = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&output);
        let reader = thread::spawn(move || {
            let mut buffer = [0; 4096];
            // A terminal without a process is an error, and not the end of a file.
            while let Ok(count @ 1..) = screen.read(&mut buffer) {
                received.lock().unwrap().extend(&buffer[..count]);
            }
        });
        Self { child, keyboard, output, reader }
    }

    /// Everything that was written to the terminal so far.
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Waits until a text was written.
    pub fn wait_for(&self, text: &str) {
        wait_for(&format!("{text:?} in the terminal, which shows: {}", self.written()), || {
            self.written().contains(text)
        });
    }

    /// Types a line and presses Enter.
    pub fn type_line(&mut self, line: &str) {
        writeln!(self.keyboard, "{line}").unwrap();
    }

    /// Waits for the end of the process. Returns its status, and everything that was written.
    pub fn finish(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        self.reader.join().unwrap();
        let output = self.output.lock().unwrap();
        (status, String::from_utf8_lossy(&output).into_owned())
    }
}

/// A pseudo terminal: the side of the terminal, and that of a process.
fn open(columns: u16) -> (OwnedFd, OwnedFd) {
    let (mut terminal, mut process) = (-1, -1);
    let size = libc::winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: both descriptors and the size outlive the call, and null is allowed for the rest. On success, the two
    // descriptors are open and belong to no one else.
    let opened = unsafe { libc::openpty(&raw mut terminal, &raw mut process, null_mut(), null_mut(), &raw const size) };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: as above.
    unsafe { (OwnedFd::from_raw_fd(terminal), OwnedFd::from_raw_fd(process)) }
}

/// The lines that a terminal of so many columns shows after this output, without blanks at their ends. It knows what
/// `ladder` uses: carriage return, line feed, cursor up and down, the removal of a line, and the next line after a full one.
pub fn screen(written: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<Vec<char>> = vec![vec![]];
    let (mut row, mut column) = (0, 0);
    let mut characters = written.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\r' => column = 0,
            '\n' => {
                row += 1;
                if row == lines.len() {
                    lines.push(vec![]);
                }
            }
            '\u{1b}' => {
                assert_eq!(characters.next(), Some('['), "an unknown sequence in {written:?}");
                let mut number = String::new();
                while let Some(part) = characters.next_if(|next| !next.is_ascii_alphabetic()) {
                    number.push(part);
                }
                let count: usize = number.parse().unwrap_or(1);
                match characters.next() {
                    Some('A') => row = row.saturating_sub(count),
                    Some('B') => row = (row + count).min(lines.len() - 1),
                    Some('K') if number == "2" => lines[row].clear(),
                    Some('K') => lines[row].truncate(column),
                    Some('m') => {}
                    other => panic!("an unknown sequence, {number}{other:?}, in {written:?}"),
                }
            }
            character => {
                if column == columns {
                    (row, column) = (row + 1, 0);
                    lines.resize(lines.len().max(row + 1), vec![]);
                }
                if lines[row].len() <= column {
                    lines[row].resize(column + 1, ' ');
                }
                lines[row][column] = character;
                column += 1;
            }
        }
    }
    lines.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned()).collect()
}
