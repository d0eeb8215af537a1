//! Packets made by hand: what an attempt sends where no library may help.

use std::net::SocketAddrV4;

/// A DNS query for the A record of `name`, as it travels over UDP. `None` if a label is empty or longer than 63
/// bytes, or the whole name is too long (RFC 1035, 2.3.4).
pub fn dns_query(id: u16, name: &str) -> Option<Vec<u8>> {
    let mut packet = id.to_be_bytes().to_vec();
    // Recursion desired; one question.
    packet.extend_from_slice(&[0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0]);
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.len() > 253 {
        return None;
    }
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok()?;
        if !(1..=63).contains(&length) {
            return None;
        }
        packet.push(length);
        packet.extend_from_slice(label.as_bytes());
    }
    // The root, type A, class IN.
    packet.extend_from_slice(&[0, 0, 1, 0, 1]);
    Some(packet)
}

/// The code of an answer (RFC 1035, 4.1.1: 0 no error, 2 failed, 3 no such name, 5 refused) and how many records answer
/// the question. `None` where it is no answer to this query.
pub fn dns_answer(query: &[u8], answer: &[u8]) -> Option<(u8, u16)> {
    let head: &[u8; 12] = answer.first_chunk()?;
    let is_answer = query.get(..2) == Some(&head[..2]) && head[2] & 0x80 != 0;
    is_answer.then(|| (head[3] & 0x0f, u16::from_be_bytes([head[6], head[7]])))
}

/// A UDP datagram (RFC 768) without checksum, which IPv4 allows: header and payload.
pub fn udp_datagram(source_port: u16, target: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let payload = &payload[..payload.len().min(1400)];
    let mut datagram = source_port.to_be_bytes().to_vec();
    datagram.extend_from_slice(&target.port().to_be_bytes());
    datagram.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    datagram.extend_from_slice(&[0, 0]);
    datagram.extend_from_slice(payload);
    datagram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_what_the_standard_says() {
        let expected =
            b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01";
        assert_eq!(
            dns_query(0x1234, "a.example").as_deref(),
            Some(&expected[..])
        );
        assert_eq!(
            dns_query(0x1234, "a.example."),
            dns_query(0x1234, "a.example")
        );
    }

    #[test]
    fn an_answer_is_told_from_an_echo() {
        let query = dns_query(7, "a.example").expect("a query");
        assert_eq!(dns_answer(&query, &query), None);
        let mut answer = query.clone();
        (answer[2], answer[3], answer[7]) = (0x81, 0x83, 2);
        assert_eq!(dns_answer(&query, &answer), Some((3, 2)));
        assert_eq!(dns_answer(&query, &answer[..11]), None);
        answer[1] = 8;
        assert_eq!(dns_answer(&query, &answer), None);
    }

    #[test]
    fn names_that_cannot_be_asked_for() {
        for name in ["", "a..b", &"x".repeat(64), &"abc.".repeat(64)] {
            assert_eq!(dns_query(1, name), None, "{name}");
        }
    }

    #[test]
    fn a_datagram_counts_its_header() {
        let target = SocketAddrV4::new([203, 0, 113, 10].into(), 0x0102);
        let expected = b"\xc0\x00\x01\x02\x00\x0b\x00\x00abc";
        assert_eq!(udp_datagram(0xc000, target, b"abc"), expected);
        assert_eq!(udp_datagram(1, target, &[0; 9000]).len(), 1408);
    }
}
