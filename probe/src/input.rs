//! What arrives on standard input, cut into lines, whatever the size of the pieces.

use escape_audit_probe::wire::MAX_LINE;

use crate::sys;

/// The lines of standard input.
#[derive(Default)]
pub struct Input {
    buffer: Vec<u8>,
    ended: bool,
    skipping: bool,
}

impl Input {
    /// Whether nothing more will come.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Reads once, and waits for it.
    pub fn read(&mut self) {
        let mut piece = [0; 4096];
        match sys::read(sys::STDIN, &mut piece) {
            Ok(0) => self.ended = true,
            Ok(n) => self.buffer.extend_from_slice(&piece[..n]),
            Err(libc::EINTR) => {}
            // Somebody made it non-blocking.
            Err(libc::EAGAIN) => {
                sys::wait_readable([Some(sys::STDIN), None], std::time::Duration::from_secs(1));
            }
            Err(_) => self.ended = true,
        }
    }

    /// The next whole line that has been read, without its end. What follows the last line feed is a line too once
    /// the input has ended. Of a line that is too long the beginning is given, which is too long to be a message.
    pub fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            let line: Vec<u8> = match self.buffer.iter().position(|byte| *byte == b'\n') {
                Some(end) => self.buffer.drain(..=end).collect(),
                None if self.buffer.len() > MAX_LINE + 2 => {
                    let start = std::mem::take(&mut self.buffer);
                    if std::mem::replace(&mut self.skipping, true) {
                        continue;
                    }
                    return Some(start);
                }
                None if self.ended && !self.buffer.is_empty() => std::mem::take(&mut self.buffer),
                None => return None,
            };
            if !std::mem::take(&mut self.skipping) {
                return Some(line.trim_ascii_end().to_vec());
            }
        }
    }
}
