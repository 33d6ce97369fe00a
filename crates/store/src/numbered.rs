//! Numbered logs: objects `<prefix>/<number>` created by put-if-absent.

use bytes::Bytes;

/// How a create of a number ended, for certain.
#[derive(Clone, Debug)]
pub enum CreateOutcome {
    /// The number holds our bytes: this try or an earlier one with the same put id created it.
    Ours,
    /// Somebody else's object holds the number; its bytes.
    Foreign(Bytes),
}
