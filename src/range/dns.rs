//! The canary name server's answers (RFC 1035): every name has one address, so that a resolver is content.

use super::places::INTERNET;

const HEADER: usize = 12;
const TYPE_A: [u8; 2] = [0, 1];

/// The answer to a query, or nothing where the bytes are no query with exactly one question.
pub(super) fn answer(query: &[u8]) -> Option<Vec<u8>> {
    let header = query.get(..HEADER)?;
    let is_query = header[2] & 0x80 == 0;
    if !is_query || header[4..6] != [0, 1] {
        return None;
    }
    let mut end = HEADER;
    loop {
        match usize::from(*query.get(end)?) {
            0 => break,
            length @ 1..=63 => end += 1 + length,
            _ => return None, // a compressed name has no place in a question
        }
    }
    let question = query.get(HEADER..end + 5)?;
    let (_, kind) = question.split_at(question.len() - 4);
    let has_address = kind[..2] == TYPE_A;

    let mut answer = header[..2].to_vec();
    // An authoritative response without an error; recursion desired is copied from the query.
    answer.extend([0x84 | header[2] & 1, 0]);
    answer.extend([0, 1, 0, u8::from(has_address), 0, 0, 0, 0]);
    answer.extend(question);
    if has_address {
        answer.extend([0xc0, HEADER as u8]); // the name: as in the question
        answer.extend([0, 1, 0, 1, 0, 0, 0, 0, 0, 4]); // A, IN, lives 0 seconds, four bytes
        answer.extend(INTERNET.octets());
    }
    Some(answer)
}

/// Whether the bytes of a stream hold a whole query, which a length precedes; and if so, the query.
pub(super) fn in_stream(bytes: &[u8]) -> Option<&[u8]> {
    let length = u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]);
    bytes.get(2..2 + usize::from(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(kind: u8) -> Vec<u8> {
        let mut query = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        query.extend(b"\x03abc\x04test\x00");
        query.extend([0, kind, 0, 1]);
        query
    }

    #[test]
    fn an_address_is_given_for_every_name_and_nothing_else() {
        let answered = answer(&query(1)).unwrap();
        assert_eq!(answered[..4], [0xab, 0xcd, 0x85, 0]);
        assert_eq!(answered[6..8], [0, 1]);
        assert!(answered.ends_with(&[203, 0, 113, 10]));
        assert_eq!(answer(&query(28)).unwrap()[6..8], [0, 0]);
    }

    #[test]
    fn no_cut_and_no_garbage_makes_it_stumble() {
        let whole = query(1);
        for cut in 0..whole.len() {
            assert_eq!(answer(&whole[..cut]), None, "cut at {cut}");
        }
        let mut looped = whole.clone();
        looped[12] = 0xc0;
        assert_eq!(answer(&looped), None);
        let mut response = whole;
        response[2] |= 0x80;
        assert_eq!(answer(&response), None);
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = (answer(&bytes), in_stream(&bytes));
        }
    }
}
