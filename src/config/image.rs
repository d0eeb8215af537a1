//! The name of an image, as registries and engines read it: <https://pkg.go.dev/github.com/distribution/reference>.
//!
//! A digest says what is audited; a tag says what it was called, and may mean another image tomorrow.

use super::compose::Wrong;
use super::model::Image;

use Wrong::Malformed;

/// What to do about a tag.
pub const HOW_TO_PIN: &str = "a tag may mean another image tomorrow: `escape-audit pin` writes the digest, which \
     `docker image inspect --format '{{index .RepoDigests 0}}' IMAGE` shows (none: the image came from no registry, write `image_id`); or say `allow_tag = true`";

/// `image`: a name with a digest, or with a tag or none.
pub fn image(text: &str) -> Result<Image, Wrong> {
    if is_digest(text) {
        return Err(Malformed(
            "this is the id of an image that the engine holds: write `image_id` instead of `image`",
        ));
    }
    let (name, digest) = match text.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (text, None),
    };
    check_name(name)?;
    match digest {
        Some(digest) if is_digest(digest) => Ok(Image::Digest {
            reference: text.to_owned(),
            digest: digest.to_owned(),
        }),
        Some(_) => Err(Malformed(
            "a digest is `sha256:` and 64 hexadecimal digits in lower case",
        )),
        None => Ok(Image::Tag(text.to_owned())),
    }
}

/// `image_id`: `docker image inspect --format '{{.Id}}' IMAGE`.
pub fn image_id(text: &str) -> Result<Image, Wrong> {
    if is_digest(text) {
        return Ok(Image::Id(text.to_owned()));
    }
    Err(Malformed(
        "write `sha256:` and 64 hexadecimal digits, which `docker image inspect --format '{{.Id}}' IMAGE` shows",
    ))
}

/// `sha256:` and 64 hexadecimal digits.
fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// `[HOST[:PORT]/]PATH[:TAG]`.
fn check_name(name: &str) -> Result<(), Wrong> {
    let (registry, rest) = match name.split_once('/') {
        Some((first, rest)) if is_registry(first) => (Some(first), rest),
        _ => (None, name),
    };
    let (path, tag) = match rest.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (rest, None),
    };
    if registry.is_some_and(|host| !is_host(host)) {
        return Err(Malformed(
            "the registry is a host with or without a port, such as `registry.example:5000/team/image`",
        ));
    }
    if !path.split('/').all(is_component) || path.len() > 255 {
        return Err(Malformed(
            "the name of an image is in lower case: letters and digits, between them `.`, `_`, `__` or `-`, and `/` between its parts",
        ));
    }
    match tag {
        Some(tag) if !is_tag(tag) => Err(Malformed(
            "a tag is made of letters, digits, `_`, `.` and `-`, at most 128, and begins with no `.` or `-`",
        )),
        _ => Ok(()),
    }
}

/// The first part of a name is a registry if it could be nothing else: `team/image` is one of the default registry's.
fn is_registry(part: &str) -> bool {
    part == "localhost"
        || part.contains(['.', ':', '['])
        || part.contains(|c: char| c.is_ascii_uppercase())
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let port_is_good = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|n| n > 0));
    let literal = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let host_is_good = match literal {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split('.').all(is_label),
    };
    port_is_good && host_is_good
}

fn is_label(label: &str) -> bool {
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Runs of lower-case letters and digits, held together by `.`, `_`, `__` or any number of `-`.
fn is_component(part: &str) -> bool {
    let is_word = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = part.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    let separators = part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    ends.is_some_and(|(first, last)| is_word(first) && is_word(last))
        && separators
            .filter(|separator| !separator.is_empty())
            .all(|text| matches!(text, "." | "_" | "__") || text.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|b| is_word(b) || matches!(b, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest() -> String {
        format!("sha256:{}", "0a".repeat(32))
    }

    #[test]
    fn a_digest_pins_whatever_stands_before_it() {
        for name in [
            "busybox",
            "python:3.12-slim",
            "team/my_image__x--y.z",
            "localhost/a",
            "registry.example:5000/team/image:v1",
            "[::1]:5000/a",
            "127.0.0.1:5000/a/b/c",
        ] {
            let text = format!("{name}@{}", digest());
            let pinned = Image::Digest {
                reference: text.clone(),
                digest: digest(),
            };
            assert_eq!(image(&text), Ok(pinned), "{name}");
            assert_eq!(image(name), Ok(Image::Tag(name.into())), "{name}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused_with_a_digest_too() {
        for name in [
            "Python",
            "a//b",
            "/a",
            "a/",
            "a:",
            "a:-x",
            "a:b:c",
            "a___b",
            "a..b",
            "-a",
            "a_",
            "a b",
            "host:port/a",
            "host:0/a",
            "-host.example/a",
            "[::g]:1/a",
            "",
        ] {
            assert!(image(name).is_err(), "{name}");
            assert!(image(&format!("{name}@{}", digest())).is_err(), "{name}");
        }
    }

    #[test]
    fn a_digest_is_whole_and_in_lower_case() {
        let whole = digest();
        let short = &whole[..70];
        let upper = whole.replace('a', "A");
        for wrong in [
            short,
            &upper,
            "sha512:00",
            "",
            &whole["sha256:".len()..],
            &format!("{whole}@{whole}"),
        ] {
            assert!(image(&format!("a@{wrong}")).is_err(), "{wrong}");
            assert!(image_id(wrong).is_err(), "{wrong}");
        }
        assert_eq!(image_id(&whole), Ok(Image::Id(whole.clone())));
        assert!(image(&whole).is_err(), "an id is no name");
    }
}
