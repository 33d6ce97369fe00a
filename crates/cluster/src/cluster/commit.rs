//! Optimistic commits. Those of concurrent callers are grouped into one entry.

use std::{collections::VecDeque, fmt, sync::Arc};

use tidemill_runtime::TaskHandle;
use tokio::sync::oneshot;

use super::Cluster;
use crate::{
    error::{CommitError, MetadataError},
    format::Change,
    image::Image,
};

/// Commits in one entry; more would only make the object large.
const GROUP_MAX: usize = 1_000;

/// A caller's decision and where its outcome goes.
trait Pending: Send {
    /// Decides anew, on an image that holds what is decided before it.
    fn decide(&mut self, image: &Image) -> Vec<Change>;
    fn finish(self: Box<Self>, outcome: Result<Arc<Image>, Failure>);
}

#[derive(Clone)]
enum Failure {
    Superseded,
    Metadata(MetadataError),
}

#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Box<dyn Pending>>,
    /// Present while the committer runs.
    committer: Option<TaskHandle<()>>,
    closed: bool,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({})", self.waiting.len())
    }
}

struct Operation<F, E> {
    closure: F,
    rejected: Option<E>,
    reply: oneshot::Sender<Result<Arc<Image>, CommitError<E>>>,
}

impl<F, E> Pending for Operation<F, E>
where
    F: FnMut(&Image) -> Result<Vec<Change>, E> + Send,
    E: Send,
{
    fn decide(&mut self, image: &Image) -> Vec<Change> {
        match (self.closure)(image) {
            Ok(changes) => {
                self.rejected = None;
                changes
            }
            Err(error) => {
                self.rejected = Some(error);
                Vec::new()
            }
        }
    }

    fn finish(self: Box<Self>, outcome: Result<Arc<Image>, Failure>) {
        let answer = match (outcome, self.rejected) {
            (Ok(_), Some(error)) => Err(CommitError::Rejected(error)),
            (Ok(image), None) => Ok(image),
            (Err(Failure::Superseded), _) => Err(CommitError::Superseded),
            (Err(Failure::Metadata(error)), _) => Err(CommitError::Metadata(error)),
        };
        // The caller may have gone; the change is committed all the same.
        let _ = self.reply.send(answer);
    }
}

/// The committer. A closure that panics ends it and the commits of its group, not those after them.
struct Running<'a>(&'a Cluster);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue.lock().committer = None;
        }
    }
}

impl Cluster {
    /// Commits the changes that `closure` makes of the image; with none it only reads. The closure
    /// is run again whenever another broker's entry comes first, so it must decide by the image
    /// alone. Dropping the future does not take the change back.
    ///
    /// Waits for ever while the store is down (R4); the caller's time-out is its own.
    ///
    /// # Errors
    /// [`CommitError`]; `Rejected` holds the closure's own error.
    pub async fn commit<F, E>(self: &Arc<Self>, closure: F) -> Result<Arc<Image>, CommitError<E>>
    where
        F: FnMut(&Image) -> Result<Vec<Change>, E> + Send + 'static,
        E: Send + 'static,
    {
        // Held until the answer is there. The semaphore is never closed.
        let _place = self.places.acquire().await;
        let (reply, answer) = oneshot::channel();
        let operation = Operation {
            closure,
            rejected: None,
            reply,
        };
        {
            let mut queue = self.queue.lock();
            if queue.closed {
                return Err(CommitError::Closed);
            }
            queue.waiting.push_back(Box::new(operation));
            if queue.committer.is_none() {
                let cluster = Arc::clone(self);
                let task = async move { cluster.commit_all().await };
                queue.committer = Some(self.runtime().tasks.spawn("metadata commit", task));
            }
        }
        answer.await.unwrap_or(Err(CommitError::Closed))
    }

    /// Ends all commits under way, whose outcome stays unknown, and refuses new ones.
    pub fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        queue.waiting.clear();
        if let Some(committer) = queue.committer.take() {
            committer.abort();
        }
    }

    async fn commit_all(self: &Arc<Self>) {
        let _running = Running(self);
        loop {
            let mut group: Vec<_> = {
                let mut queue = self.queue.lock();
                let len = queue.waiting.len().min(GROUP_MAX);
                if len == 0 {
                    // Under the lock, so that whoever comes next starts another one.
                    queue.committer = None;
                    return;
                }
                queue.waiting.drain(..len).collect()
            };
            let outcome = self.commit_group(&mut group).await;
            for pending in group {
                pending.finish(outcome.clone());
            }
            self.snapshot_if_due();
        }
    }

    async fn commit_group(&self, group: &mut [Box<dyn Pending>]) -> Result<Arc<Image>, Failure> {
        loop {
            let image = self.image();
            let writer = self.writer();
            if !image.may_write(writer) {
                return Err(Failure::Superseded);
            }
            let number = image.next();
            let mut scratch = Image::clone(&image);
            let mut changes = Vec::new();
            for pending in group.iter_mut() {
                for change in pending.decide(&scratch) {
                    scratch.apply_change(number, &change);
                    changes.push(change);
                }
            }
            if changes.is_empty() {
                return Ok(image);
            }
            let put_id = self.put_id();
            match self.create_entry(number, put_id, &changes, None).await {
                Ok(true) => return Ok(self.image()),
                Ok(false) => {}
                Err(error) => return Err(Failure::Metadata(error)),
            }
        }
    }
}
