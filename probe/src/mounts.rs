//! Reading `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).

/// The mount points, in order, with their octal escapes undone.
pub fn points(mountinfo: &[u8]) -> Vec<Vec<u8>> {
    let lines = mountinfo.split(|byte| *byte == b'\n');
    let fields = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    fields.map(unescape).collect()
}

/// The kernel writes space, tab, line feed and backslash as `\ooo`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (
                b'\\',
                [
                    a @ b'0'..=b'3',
                    b @ b'0'..=b'7',
                    c @ b'0'..=b'7',
                    after @ ..,
                ],
            ) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_come_in_order_and_whole() {
        let text = b"22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            23 22 0:22 /a\\040b /mnt/with\\040space\\134 rw - tmpfs none rw\n\
            short line\n";
        assert_eq!(points(text), [b"/".to_vec(), b"/mnt/with space\\".to_vec()]);
    }

    #[test]
    fn a_broken_escape_stays_as_it_is() {
        assert_eq!(unescape(b"a\\04"), b"a\\04");
        assert_eq!(unescape(b"\\777"), b"\\777");
    }
}
