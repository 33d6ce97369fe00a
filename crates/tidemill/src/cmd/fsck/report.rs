//! What a check has found, for people and for programs.

use std::io::{self, Write};

use serde::Serialize;
use tidemill_log::fsck::{Finding, Report};

/// The outcome; its number is the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Verdict {
    /// All is well.
    Sound = 0,
    /// Nothing is lost, but there are objects that nobody needs and nobody will delete.
    Garbage = 1,
    /// Something stored is lost, unreadable or contradicts the rest.
    Damage = 2,
    /// Nothing can be said.
    Unchecked = 3,
}

#[derive(Debug, Serialize)]
struct Line {
    key: String,
    what: String,
}

impl From<Finding> for Line {
    fn from(finding: Finding) -> Self {
        Self {
            key: finding.key,
            what: finding.what,
        }
    }
}

/// All findings, and what was looked at. Serialized as the report of `--json`.
#[derive(Debug, Default, Serialize)]
pub struct Findings {
    store: String,
    deep: bool,
    damage: Vec<Line>,
    garbage: Vec<Line>,
    /// Objects that a broker will list or delete by itself.
    pending: u64,
    topics: u64,
    partitions: u64,
    writers: u64,
    objects: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Findings {
    /// What was found in `store`.
    pub fn new(store: String, deep: bool, report: Report) -> Self {
        let lines = |found: Vec<Finding>| found.into_iter().map(Line::from).collect();
        Self {
            store,
            deep,
            damage: lines(report.damage),
            garbage: lines(report.garbage),
            pending: report.pending,
            topics: report.topics,
            partitions: report.partitions,
            writers: report.writers,
            objects: report.objects,
            bytes: report.bytes,
            error: None,
        }
    }

    /// The check could not be made.
    pub fn unchecked(error: String) -> Self {
        Self {
            error: Some(error),
            ..Self::default()
        }
    }

    /// The outcome.
    pub fn verdict(&self) -> Verdict {
        if self.error.is_some() {
            Verdict::Unchecked
        } else if !self.damage.is_empty() {
            Verdict::Damage
        } else if !self.garbage.is_empty() {
            Verdict::Garbage
        } else {
            Verdict::Sound
        }
    }

    /// Writes the report as one JSON object.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        #[derive(Serialize)]
        struct Whole<'a> {
            verdict: Verdict,
            #[serde(flatten)]
            findings: &'a Findings,
        }
        let whole = Whole {
            verdict: self.verdict(),
            findings: self,
        };
        serde_json::to_writer_pretty(&mut *out, &whole)?;
        writeln!(out)
    }

    /// Writes the report as lines.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn text(&self, out: &mut impl Write) -> io::Result<()> {
        if let Some(error) = &self.error {
            return writeln!(out, "could not be checked: {error}");
        }
        for Line { key, what } in &self.damage {
            writeln!(out, "damage: `{key}`: {what}")?;
        }
        for Line { key, what } in &self.garbage {
            writeln!(out, "garbage: `{key}`: {what}")?;
        }
        let Self {
            topics,
            partitions,
            writers,
            objects,
            bytes,
            pending,
            ..
        } = self;
        writeln!(
            out,
            "checked {}: {topics} topics, {partitions} partitions with data, {writers} writers, \
             {objects} objects, {bytes} bytes; {pending} more are a broker's to list or delete",
            self.store
        )?;
        let how = if self.deep {
            "every byte"
        } else {
            "headers and directories"
        };
        match self.verdict() {
            Verdict::Sound => writeln!(out, "sound ({how})"),
            Verdict::Garbage => writeln!(out, "sound, with {} garbage objects", self.garbage.len()),
            _ => writeln!(out, "damaged: {} findings", self.damage.len()),
        }
    }
}
