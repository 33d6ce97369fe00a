//! Memory for large requests, over all connections.
//!
//! A frame takes its share as its bytes come, so a claim costs nobody anything. What is taken piece
//! by piece could be stuck: all of it in frames of which each waits for more. Hence one frame at a
//! time goes on beyond the limit, until it is answered.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const KIB: usize = 1024;

/// What large requests share. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RequestMemory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// In KiB.
    pool: Arc<Semaphore>,
    /// Held by the frame that goes on beyond the pool.
    beyond: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// A frame's share, given back when it is dropped.
#[derive(Debug, Default)]
pub struct Share {
    /// Bytes that it covers.
    bytes: usize,
    permit: Option<OwnedSemaphorePermit>,
    beyond: Option<OwnedSemaphorePermit>,
}

/// Counts who waits, however the waiting ends.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RequestMemory {
    /// Memory of `bytes`, and of one request beyond them.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Inner {
            pool: Arc::new(Semaphore::new(bytes.div_ceil(KIB))),
            beyond: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
        }))
    }

    /// Bytes that nobody holds.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.0.pool.available_permits() * KIB
    }

    /// True while a frame waits for memory.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
    }

    /// Lets `share` cover `bytes`, unless it would have to wait for that.
    pub fn try_grow(&self, share: &mut Share, bytes: usize) -> bool {
        let more = share.lacks(bytes);
        if more == 0 || share.beyond.is_some() {
            share.bytes = share.bytes.max(bytes);
            return true;
        }
        match Arc::clone(&self.0.pool).try_acquire_many_owned(more) {
            Ok(permit) => share.add(permit, bytes),
            Err(_) => return false,
        }
        true
    }

    /// `share` when it covers `bytes`.
    pub async fn grow(self, mut share: Share, bytes: usize) -> Share {
        let _waiting = Waiting::new(&self.0.waiting);
        let more = Arc::clone(&self.0.pool).acquire_many_owned(share.lacks(bytes));
        let beyond = Arc::clone(&self.0.beyond).acquire_owned();
        // Neither is ever closed; without a permit the share would merely not be counted.
        tokio::select! {
            biased;
            permit = more => permit.into_iter().for_each(|permit| share.add(permit, bytes)),
            permit = beyond => {
                share.beyond = permit.ok();
                share.bytes = bytes;
            }
        }
        share
    }
}

impl Share {
    /// KiB that it needs to cover `bytes`.
    fn lacks(&self, bytes: usize) -> u32 {
        let more = bytes.div_ceil(KIB).saturating_sub(self.bytes.div_ceil(KIB));
        u32::try_from(more).unwrap_or(u32::MAX)
    }

    fn add(&mut self, permit: OwnedSemaphorePermit, bytes: usize) {
        match &mut self.permit {
            Some(held) => held.merge(permit),
            None => self.permit = Some(permit),
        }
        self.bytes = bytes;
    }
}
