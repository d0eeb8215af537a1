//! Which cases are wanted: `--case`, `--skip`, `--tag`, `--severity`, `--level`.

use std::fmt;
use std::str::FromStr;

use globset::{Glob, GlobMatcher};
use sha2::{Digest as _, Sha256};

use super::library::Library;
use super::model::{Case, Level, Severity};
use super::names::tags;
use crate::diag::{Code, Diagnostic, Diagnostics, closest, suggest};

/// What else a case may be that is not found: the folder of one's own was forgotten.
pub const OWN_CASES: &str = "A case of your own needs `--cases DIR`";

/// One part of the library, chosen by the hashes of the ids: `hash:2/3`. Every id is in just one of the parts, on every
/// machine, whatever other cases there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    /// From 1.
    part: u64,
    of: u64,
}

impl Partition {
    /// Whether the case of this id is in this part.
    pub fn has(self, id: &str) -> bool {
        let hash = Sha256::digest(id.as_bytes());
        let number = hash
            .iter()
            .take(8)
            .fold(0, |number, byte| number << 8 | u64::from(*byte));
        number % self.of == self.part - 1
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "hash:{}/{}", self.part, self.of)
    }
}

impl FromStr for Partition {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text
            .strip_prefix("hash:")
            .and_then(|text| text.split_once('/'));
        let number = |text: &str| text.parse::<u64>().ok();
        match numbers.and_then(|(part, of)| Some((number(part)?, number(of)?))) {
            Some((part, of)) if (1..=of).contains(&part) && of <= 1000 => Ok(Self { part, of }),
            _ => Err("write it as `hash:M/N`: part M of N, from 1"),
        }
    }
}

/// What the user asked for. The default asks for everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Globs over ids, or names of categories; a case has to match one. Empty: all.
    pub cases: Vec<String>,
    /// Globs over ids, or names of categories; a case that matches one is left out.
    pub skips: Vec<String>,
    /// A case has to carry one of them. Empty: all.
    pub tags: Vec<String>,
    /// Cases of at least this severity.
    pub severity: Option<Severity>,
    /// Cases that must hold at this level of paranoia: its own and those of the lower ones.
    pub level: Option<Level>,
    /// Cases of this part of the library.
    pub partition: Option<Partition>,
}

impl Filter {
    /// The cases that match everything that was asked for, in the order of the library; possibly none.
    ///
    /// A glob that matches no case of the library, and a tag that does not exist, are mistakes: a typo must not pass for
    /// a green audit of nothing.
    pub fn select<'l>(&self, library: &'l Library) -> Result<Vec<&'l Case>, Diagnostics> {
        let mut mistakes = Diagnostics::default();
        let wanted = globs("--case", &self.cases, library, &mut mistakes);
        let unwanted = globs("--skip", &self.skips, library, &mut mistakes);
        let known = tags();
        for tag in self
            .tags
            .iter()
            .filter(|tag| !known.contains(&tag.as_str()))
        {
            let message = format!("--tag {tag}: there is no such tag");
            mistakes.push(Diagnostic::new(
                Code::NoMatch,
                message,
                suggest(tag, &known),
            ));
        }
        let any =
            |globs: &[GlobMatcher], case: &Case| globs.iter().any(|glob| glob.is_match(&case.id));
        let selected = library.cases.iter().filter(|case| {
            (wanted.is_empty() || any(&wanted, case))
                && !any(&unwanted, case)
                && (self.tags.is_empty() || self.tags.iter().any(|tag| case.tags.contains(tag)))
                && self.severity.is_none_or(|least| case.severity >= least)
                && self.level.is_none_or(|level| case.level <= level)
                && self.partition.is_none_or(|part| part.has(&case.id))
        });
        mistakes.or(selected.collect())
    }
}

fn globs(
    option: &str,
    patterns: &[String],
    library: &Library,
    mistakes: &mut Diagnostics,
) -> Vec<GlobMatcher> {
    let mut globs = Vec::new();
    for pattern in patterns {
        let is_category = library.cases.iter().any(|case| case.category() == pattern);
        let text = if is_category {
            format!("{pattern}/*")
        } else {
            pattern.clone()
        };
        match Glob::new(&text).map(|glob| glob.compile_matcher()) {
            Err(error) => mistakes.push(Diagnostic::new(
                Code::BadPattern,
                format!("{option} {pattern}: {}", error.kind()),
                "use `*` for any characters, `?` for one: \"network/*\"",
            )),
            Ok(glob) if library.cases.iter().any(|case| glob.is_match(&case.id)) => {
                globs.push(glob)
            }
            Ok(_) => mistakes.push(nothing(option, pattern, library)),
        }
    }
    globs
}

fn nothing(option: &str, pattern: &str, library: &Library) -> Diagnostic {
    let ids = library.ids();
    let categories = library.cases.iter().map(Case::category);
    let names = ids
        .iter()
        .map(|id| id.split_once('/').map_or(*id, |(_, name)| name));
    let bare = pattern.rsplit('/').next().unwrap_or(pattern);
    // Most typos are in the id; else the category was forgotten, or is itself the word.
    let meant = match closest(pattern, ids.iter().copied().chain(categories)) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => match closest(bare, names) {
            Some(name) => format!("did you mean `*/{name}`?"),
            None => "`escape-audit list` shows every case.".into(),
        },
    };
    let help = format!("{meant} {OWN_CASES}");
    Diagnostic::new(
        Code::NoMatch,
        format!("{option} {pattern}: no case matches"),
        help,
    )
}
