//! What is shown again and again: on a terminal in its place, elsewhere one after the other.
#![allow(clippy::print_stdout)] // this is the command line's face

use crate::group::pause_for;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{self, LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use signal_hook::consts::{SIGHUP, SIGTERM};
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Clears the screen and goes to its first line; begins and ends the terminal's other screen.
const CLEAR: &str = "\x1b[H\x1b[J";
const BEGIN: &str = "\x1b[?1049h\x1b[?25l";
const END: &str = "\x1b[?25h\x1b[?1049l";
/// Ctrl-C, which a terminal gives as a key here.
const INTERRUPT: u8 = 3;

/// Where something is shown until it is over.
pub(crate) struct Live {
    /// Where standard output and input are a terminal.
    screen: Option<Screen>,
    json: bool,
    pause: Duration,
    shown: bool,
    broken: bool,
}

/// Why a wait was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is time to show it again.
    Again,
    /// A key was pressed.
    Key(u8),
    /// Whoever looked has gone.
    Over,
}

impl Live {
    /// Shows something every so often.
    pub(crate) fn new(json: bool, pause: Duration) -> Live {
        let terminal = !json && io::stdout().is_terminal() && io::stdin().is_terminal();
        let screen = terminal.then(Screen::begin).flatten();
        Live { screen, json, pause, shown: false, broken: false }
    }

    /// Shows lines as they come, everywhere one after the other.
    pub(crate) fn lines(json: bool) -> Live {
        Live { screen: None, json, pause: Duration::ZERO, shown: false, broken: false }
    }

    /// Whether nobody looks any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether it is shown in one place, with keys.
    pub(crate) fn has_screen(&self) -> bool {
        self.screen.is_some()
    }

    /// Shows these lines: on a terminal as many as it has room for.
    pub(crate) fn show(&mut self, lines: &[String]) {
        let mut text = String::new();
        if self.screen.is_some() {
            let (rows, columns) = size();
            text += CLEAR;
            let fits = lines.len() <= rows;
            let shown = if fits { lines.len() } else { rows.saturating_sub(1) };
            let cut = |line: &String| line.chars().take(columns).collect::<String>();
            text += &lines[..shown].iter().map(cut).collect::<Vec<_>>().join("\n");
            if !fits {
                text += &format!("\nand {} more lines: the terminal is too small", lines.len() - shown);
            }
        } else {
            if self.shown && lines.len() > 1 {
                text.push('\n');
            }
            for line in lines {
                text += line;
                text.push('\n');
            }
        }
        self.shown = true;
        let mut out = io::stdout().lock();
        // A closed pipe (`| head`) ends it.
        self.broken |= out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err();
    }

    /// Prints a JSON object on a line of its own.
    pub(crate) fn line(&mut self, value: &serde_json::Value) {
        let mut out = io::stdout().lock();
        self.broken |= writeln!(out, "{value}").and_then(|()| out.flush()).is_err();
    }

    /// Waits until it is time to show it again, or a key is pressed, or nobody looks any more.
    pub(crate) fn wait(&self) -> Next {
        if self.broken || self.is_told_to_end() {
            return Next::Over;
        }
        if self.screen.is_none() || self.json {
            pause_for(self.pause);
            return Next::Again;
        }
        let until = Instant::now() + self.pause;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let stdin = io::stdin();
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut polled, Some(&timeout)) {
                Ok(0) => return Next::Again,
                Err(rustix::io::Errno::INTR) if self.is_told_to_end() => return Next::Over,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return Next::Over,
                Ok(_) => {}
            }
            let mut key = [0];
            return match rustix::io::read(&stdin, &mut key) {
                Ok(1) if matches!(key[0], b'q' | INTERRUPT) => Next::Over,
                Ok(1) => Next::Key(key[0]),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
                _ => Next::Over,
            };
        }
    }

    /// Whether a signal has told it to end, so that the terminal is left as it was.
    fn is_told_to_end(&self) -> bool {
        self.screen.as_ref().is_some_and(|screen| screen.told_to_end.load(Ordering::Relaxed))
    }
}

/// How many rows and columns the terminal has.
fn size() -> (usize, usize) {
    let told = termios::tcgetwinsize(io::stdout()).ok();
    let told = told.filter(|size| size.ws_row > 0 && size.ws_col > 0);
    told.map_or((24, 80), |size| (size.ws_row.into(), size.ws_col.into()))
}

/// The terminal's other screen, on which keys come at once. It is as it was when this is dropped.
struct Screen {
    before: Termios,
    told_to_end: Arc<AtomicBool>,
}

impl Screen {
    fn begin() -> Option<Screen> {
        let before = termios::tcgetattr(io::stdin()).ok()?;
        let mut modes = before.clone();
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        let told_to_end = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, told_to_end.clone()).ok()?;
        }
        termios::tcsetattr(io::stdin(), OptionalActions::Now, &modes).ok()?;
        print!("{BEGIN}");
        Some(Screen { before, told_to_end })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        print!("{END}");
        let _ = io::stdout().flush();
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
