//! What can go wrong, how often, and where.

use std::time::Duration;

use tidemill_runtime::Entropy;

/// The operations of a [`Backend`](crate::Backend).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// `put_if_absent`
    Put,
    /// `get` and `get_range`
    Get,
    /// `head`
    Head,
    /// `delete`
    Delete,
    /// `list`
    List,
    /// `copy_if_absent`
    Copy,
}

impl Operation {
    /// Its name in errors.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Head => "head",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Copy => "copy",
        }
    }

    fn writes(self) -> bool {
        matches!(self, Self::Put | Self::Copy)
    }
}

/// One way in which a request can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 503 `SlowDown`; not carried out.
    Throttled,
    /// The connection is refused; not carried out.
    ErrorBefore,
    /// Carried out, then the connection is reset: outcome unknown.
    ErrorAfter,
    /// No answer for this long, and not carried out; then an error of unknown outcome.
    TimeoutBefore(Duration),
    /// Carried out, but no answer for this long; then an error of unknown outcome.
    TimeoutAfter(Duration),
    /// Carried out and answered well, this much later.
    Stall(Duration),
    /// Writes: an error of unknown outcome at once, and the write arrives this much later.
    Late(Duration),
    /// Writes: carried out and answered well, and the same write arrives once more this much later
    /// (R11: it may re-create a number that was trimmed).
    Twin(Duration),
    /// Writes: carried out, but answered with 412: our own earlier write (a false 412).
    ExistsAfter,
    /// Writes: not carried out, and answered with 409: a conflicting request is under way.
    Conflict,
    /// Answered with 404 although the key could be created or is there; not carried out (K94).
    NotFound,
    /// 403; not carried out.
    Refused,
    /// Writes: no space is left; not carried out.
    Full,
    /// Reads: fewer bytes than asked for, without an error.
    Torn,
    /// Reads: the answer breaks off with an error.
    Truncated,
    /// Reads: one bit is wrong.
    BitFlip,
    /// Listings: two keys are swapped.
    Unordered,
}

impl Fault {
    /// True if it can happen to `operation`.
    #[must_use]
    pub fn applies_to(self, operation: Operation) -> bool {
        match self {
            Self::Throttled
            | Self::ErrorBefore
            | Self::ErrorAfter
            | Self::TimeoutBefore(_)
            | Self::TimeoutAfter(_)
            | Self::Stall(_)
            | Self::Refused => true,
            // A 404 to a read or a listing would be a lie that nobody can see through.
            Self::Late(_)
            | Self::Twin(_)
            | Self::ExistsAfter
            | Self::Conflict
            | Self::Full
            | Self::NotFound => operation.writes(),
            Self::Torn | Self::Truncated | Self::BitFlip => operation == Operation::Get,
            Self::Unordered => operation == Operation::List,
        }
    }
}

/// A scripted fault. Rules come before rates; the first that matches is used.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The operation; `None` for all.
    pub operation: Option<Operation>,
    /// What the key (the prefix of a listing, the target of a copy) must contain; empty for all.
    pub key: String,
    /// What goes wrong.
    pub fault: Fault,
    /// Matching requests let through first.
    pub skip: u64,
    /// Matching requests that fail after that; `None` for all.
    pub times: Option<u64>,
}

impl Rule {
    /// Every `operation` on keys that contain `key` fails with `fault`.
    #[must_use]
    pub fn new(operation: Operation, key: impl Into<String>, fault: Fault) -> Self {
        Self {
            operation: Some(operation),
            key: key.into(),
            fault,
            skip: 0,
            times: None,
        }
    }

    /// Only the first `times` do.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// The first `skip` do not.
    #[must_use]
    pub fn skip(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    fn matches(&mut self, operation: Operation, key: &str) -> bool {
        let fits = self.operation.is_none_or(|wanted| wanted == operation)
            && key.contains(&self.key)
            && self.fault.applies_to(operation);
        if !fits {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        match &mut self.times {
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
            None => true,
        }
    }
}

/// What goes wrong: scripted rules, then rates.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// Scripted faults, first match first.
    pub rules: Vec<Rule>,
    /// Probability (0 to 1) of each fault per request it applies to, tried in order.
    pub rates: Vec<(Fault, f64)>,
    /// Every request takes between the first and the second, half before it is carried out.
    pub delay: Option<(Duration, Duration)>,
}

impl FaultPlan {
    /// No faults, no delay.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// A bad day: every fault that a correct store may show, at a few per cent in all. No lost or
    /// unordered listings and no silent bit flips, which only tests of their detection ask for.
    #[must_use]
    pub fn bad_day() -> Self {
        let seconds = Duration::from_secs;
        let rates = vec![
            (Fault::Throttled, 0.02),
            (Fault::ErrorBefore, 0.01),
            (Fault::ErrorAfter, 0.02),
            (Fault::TimeoutBefore(seconds(45)), 0.003),
            (Fault::TimeoutAfter(seconds(45)), 0.003),
            (Fault::Stall(seconds(3)), 0.01),
            (Fault::Late(seconds(7)), 0.01),
            (Fault::Late(seconds(7_200)), 0.005),
            (Fault::Twin(seconds(2)), 0.01),
            (Fault::Twin(seconds(3_600)), 0.005),
            (Fault::ExistsAfter, 0.01),
            (Fault::Conflict, 0.01),
            (Fault::NotFound, 0.005),
            (Fault::Torn, 0.005),
            (Fault::Truncated, 0.01),
        ];
        let delay = Some((Duration::from_millis(1), Duration::from_millis(60)));
        Self {
            rules: Vec::new(),
            rates,
            delay,
        }
    }

    /// Adds a rate.
    #[must_use]
    pub fn rate(mut self, fault: Fault, probability: f64) -> Self {
        self.rates.push((fault, probability));
        self
    }

    /// Adds a rule.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Sets the delay.
    #[must_use]
    pub fn delayed(mut self, least: Duration, most: Duration) -> Self {
        self.delay = Some((least, most));
        self
    }

    pub(crate) fn pick(
        &mut self,
        entropy: &Entropy,
        operation: Operation,
        key: &str,
    ) -> Option<Fault> {
        if let Some(rule) = self.rules.iter_mut().find_map(|rule| {
            let fault = rule.fault;
            rule.matches(operation, key).then_some(fault)
        }) {
            return Some(rule);
        }
        self.rates
            .iter()
            .filter(|(fault, _)| fault.applies_to(operation))
            .find_map(|(fault, probability)| entropy.chance(*probability).then_some(*fault))
    }
}
