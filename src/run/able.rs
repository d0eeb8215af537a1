//! Whether an attempt gets through where nothing should stop it: without any sandbox, or in a container of the same
//! engine that nothing restricts. Without that, its refusal proves nothing.

use std::collections::BTreeMap;

use super::Audit;
use super::bench::Bench;
use super::instance::{self, Made, Order};
use crate::backend::unsandboxed::Unsandboxed;
use crate::backend::{Backend, BackendError};
use crate::case::{Case, Need};
use crate::config::Sandbox;
use crate::config::model::{NOBODY, User};
use crate::evidence::{Able, Evidence};
use crate::judge::judge;
use crate::plan::{self, Control};
use crate::verdict::Verdict;

/// What several cases brought that were tried together where nothing should stop them.
#[derive(Clone, Default)]
pub(super) struct Together {
    /// By the case's index.
    pub(super) able: BTreeMap<usize, Able>,
    /// A canary was reached.
    pub(super) reached: bool,
    /// The host saw the probe by its secret name.
    pub(super) seen_by_name: bool,
}

/// One sandbox, and where its cases are shown to be able.
#[derive(Clone, Copy)]
pub(super) struct Controlled<'a> {
    pub(super) bench: &'a Bench,
    pub(super) sandbox: &'a Sandbox,
    pub(super) backend: Result<&'a dyn Backend, &'a BackendError>,
    pub(super) control: Control,
}

impl Controlled<'_> {
    fn place(&self) -> Sandbox {
        match self.control {
            Control::Unsandboxed => plan::able_sandbox(&self.sandbox.policy, self.sandbox.range),
            Control::Unrestricted => plan::unrestricted(self.sandbox),
        }
    }

    /// The same for one case alone: an attempt that means nothing to root is made by somebody else.
    fn place_for(&self, case: &Case) -> Sandbox {
        let mut place = self.place();
        if self.control == Control::Unrestricted && case.needs.contains(&Need::NotRoot) {
            place.settings.user = User::Ids(NOBODY.0, NOBODY.1);
        }
        place
    }

    fn order<'a>(&'a self, place: &'a Sandbox, watches: bool) -> Order<'a> {
        Order {
            bench: self.bench,
            sandbox: place,
            settings: &place.settings,
            backend: match self.control {
                Control::Unsandboxed => Ok(&Unsandboxed),
                Control::Unrestricted => self.backend,
            },
            watches,
        }
    }

    /// These cases in one go: one probe, one attempt after the other.
    pub(super) async fn together(
        &self,
        audit: &Audit,
        list: Vec<usize>,
        number: usize,
    ) -> Together {
        let place = self.place();
        let possible =
            |index: &usize| plan::skip(&audit.cases[*index], &place, &self.bench.machine);
        let list: Vec<usize> = list
            .into_iter()
            .filter(|index| possible(index).is_none())
            .collect();
        let cases: Vec<&Case> = list.iter().map(|index| &audit.cases[*index]).collect();
        if cases.is_empty() && self.control == Control::Unsandboxed {
            return Together::default();
        }
        let made = self.made(&place, false, &cases, number).await;
        // A container beside the sandbox says nothing about where its network comes out.
        let posts = self.backend.ok().and_then(Backend::posts);
        let of_post = |address| posts.is_some_and(|posts| posts.holds(address));
        let mut touches = made.seen.iter().flat_map(|seen| &seen.evidence.touches);
        let reached = touches.any(|touch| !of_post(&touch.address));
        let able = cases
            .iter()
            .zip(made.seen)
            .map(|(case, seen)| able_by(case, &place, seen.evidence));
        Together {
            able: list.into_iter().zip(able).collect(),
            reached,
            seen_by_name: made.seen_by_name,
        }
    }

    /// Where an engine's container that nothing restricts is the control, what it reaches there is a way to.
    async fn made(&self, place: &Sandbox, watches: bool, cases: &[&Case], number: usize) -> Made {
        let made = instance::make(self.order(place, watches), cases, number).await;
        let posts = self.backend.ok().and_then(Backend::posts);
        if let (Control::Unrestricted, Some(posts)) = (self.control, posts) {
            posts.vouch(made.seen.iter().flat_map(|seen| &seen.evidence.touches));
        }
        made
    }

    pub(super) async fn alone(&self, case: &Case, number: usize) -> Able {
        let place = self.place_for(case);
        if let Some(skip) = plan::skip(case, &place, &self.bench.machine) {
            return Able::NotProven { why: skip.sentence };
        }
        let mut made = self.made(&place, true, &[case], number).await;
        able_by(case, &place, made.seen.swap_remove(0).evidence)
    }
}

/// The attempt is able where it comes out ESCAPED.
fn able_by(case: &Case, control: &Sandbox, mut seen: Evidence) -> Able {
    let by = control.name.clone();
    seen.able = Able::Proven { by: by.clone() };
    let judgement = judge(case, control, &seen);
    match judgement.verdict {
        Verdict::Escaped => Able::Proven { by },
        _ => Able::NotProven {
            why: format!(
                "{}: it came out {} ({}): {}",
                control.name,
                judgement.verdict.name(),
                judgement.reason,
                judgement.sentence
            ),
        },
    }
}
