//! What holds of every collection of mistakes.

use escape_audit::diag::Diagnostics;

/// Each mistake marks whole characters of this text, says something and helps; and all of them can be shown, without a
/// control character of the file's own.
pub fn check(mistakes: &Diagnostics, text: &str) {
    assert!(!mistakes.is_empty(), "refused without a mistake");
    for mistake in mistakes.iter() {
        assert!(!mistake.message.is_empty() && !mistake.help.is_empty());
        let places = mistake.place.iter().chain(&mistake.other);
        for (source, span) in places.filter_map(|place| place.span.as_ref()) {
            assert_eq!(&*source.text, text);
            let marked = text.get(span.clone());
            assert!(
                marked.is_some(),
                "{span:?} is no part of the file: {mistake:?}"
            );
        }
    }
    // Showing them takes longest: in one of the two ways each.
    let colour = text.len() % 2 == 1;
    let shown = mistakes.render(colour);
    let ours = |c: char| c == '\n' || (colour && c == '\x1b');
    let wild = shown.chars().find(|c| c.is_control() && !ours(*c));
    assert_eq!(wild, None, "{shown:?}");
}
