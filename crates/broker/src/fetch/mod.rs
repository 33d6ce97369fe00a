//! What a Fetch needs besides its layout: sessions, and reading many partitions within one budget.

pub(crate) mod cold;
pub(crate) mod reader;
pub(crate) mod session;
pub(crate) mod source;
