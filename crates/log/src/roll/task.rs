//! The roll's task: when which step runs.

use std::{fmt, sync::Arc, time::Duration};

use tidemill_runtime::{Instant, TaskHandle};
use tidemill_wire::ids::Offset;
use tokio::sync::{mpsc, oneshot};

use super::{Ownership, RollError, RollState, Roller};
use crate::{
    ckpt::{ChainError, Landed, close},
    error::DrainError,
    log::Log,
    partition::Partition,
};

/// How often the task looks at what is due. Costs a few loads from memory, no request.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How often it looks at every partition: ages, moved log starts, dropped partitions.
const SCAN_INTERVAL: Duration = Duration::from_secs(5);
/// Pause after a step that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// Pause before cleaning up is tried again while no checkpoint counts.
const CLEAN_PAUSE: Duration = Duration::from_secs(10);
/// A moved log start alone brings about no more than one checkpoint in this time.
const LOG_START_INTERVAL: Duration = Duration::from_secs(60);
/// What a look may spend on deleting objects, and on trimming the WAL (O3).
const TIDY_SLICE: Duration = Duration::from_millis(500);
/// Rounds asked for that may wait.
const REQUESTS_MAX: usize = 16;

/// A running roll.
#[derive(Debug)]
pub struct Roll {
    log: Arc<Log>,
    requests: mpsc::Sender<Request>,
    task: parking_lot::Mutex<Option<TaskHandle<()>>>,
}

#[derive(Debug)]
enum Request {
    Round(oneshot::Sender<Result<(), RollError>>),
    Stop,
}

/// Why a clean stop did not end cleanly. Nothing acknowledged is lost: the next start seals and
/// replays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShutdownError {
    /// Not everything appended could be written.
    Drain(DrainError),
    /// The checkpoint log could not be closed.
    Close(ChainError),
    /// The deadline passed.
    Deadline,
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drain(error) => error.fmt(f),
            Self::Close(error) => error.fmt(f),
            Self::Deadline => f.write_str("deadline passed"),
        }
    }
}

impl std::error::Error for ShutdownError {}

impl Roll {
    /// Starts rolling `log`.
    #[must_use]
    pub fn start(log: Arc<Log>, ownership: Arc<dyn Ownership>) -> Arc<Self> {
        let (requests, inbox) = mpsc::channel(REQUESTS_MAX);
        let roller = Roller::new(log.clone(), ownership);
        let task = log.runtime().tasks.spawn("log-roll", run(roller, inbox));
        Arc::new(Self {
            log,
            requests,
            task: parking_lot::Mutex::new(Some(task)),
        })
    }

    /// Runs a round now.
    ///
    /// # Errors
    /// The round's error, or [`RollError::Stopped`].
    pub async fn round(&self) -> Result<(), RollError> {
        let (reply, answer) = oneshot::channel();
        self.requests
            .send(Request::Round(reply))
            .await
            .map_err(|_| RollError::Stopped)?;
        answer.await.unwrap_or(Err(RollError::Stopped))
    }

    /// Stops cleanly: writes what is pending, rolls what half of the time left allows, and closes
    /// the writer's own checkpoint log, so that the next start has nothing to seal.
    ///
    /// # Errors
    /// [`ShutdownError`]; the next start seals this writer.
    pub async fn shutdown(&self, deadline: Instant) -> Result<(), ShutdownError> {
        let clock = self.log.runtime().clock.clone();
        self.log
            .drain(deadline)
            .await
            .map_err(ShutdownError::Drain)?;
        let left = deadline.saturating_duration_since(clock.monotonic());
        match clock.timeout(left / 2, self.round()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "last round failed"),
            Err(_) => tracing::warn!("last round took too long; the next start replays the WAL"),
        }
        let _ = self.requests.try_send(Request::Stop);
        let task = self.task.lock().take();
        if let Some(task) = task {
            // A round that hangs must not keep the log open; what it may still publish is either
            // followed by the closing checkpoint or refused.
            task.abort();
            let _ = task.join().await;
        }
        let closing = close_own(&self.log);
        match clock.timeout_at(deadline, closing).await {
            Ok(closed) => closed.map_err(ShutdownError::Close)?,
            Err(_) => return Err(ShutdownError::Deadline),
        }
        self.log.close();
        Ok(())
    }
}

/// Closes the log's own checkpoint log. Everything sent has landed.
async fn close_own(log: &Log) -> Result<(), ChainError> {
    let (writer, cluster_id) = (log.writer(), log.options().cluster_id);
    let landed = Landed {
        decided_below: log.decided_below(),
        above: Vec::new(),
    };
    close(log.store(), writer, cluster_id, &landed, None)
        .await
        .map(drop)
}

/// When what is due next.
struct Schedule {
    scan: Instant,
    log_starts: Instant,
    retention: Instant,
    /// Nothing is tried before: a step has failed.
    pause: Instant,
    /// A merge may find something.
    merge: bool,
    clean: Option<Instant>,
}

async fn run(mut roller: Roller, mut inbox: mpsc::Receiver<Request>) {
    let clock = roller.log.runtime().clock.clone();
    let now = clock.monotonic();
    let grace = roller.options.grace;
    let mut schedule = Schedule {
        scan: if roller.is_in_haste {
            now
        } else {
            now + SCAN_INTERVAL
        },
        log_starts: now + LOG_START_INTERVAL,
        retention: now + roller.options.retention_interval,
        pause: now,
        merge: true,
        clean: Some(now + SCAN_INTERVAL + grace),
    };
    loop {
        tokio::select! {
            biased;
            request = inbox.recv() => match request {
                Some(Request::Round(reply)) => {
                    let done = roller.round().await;
                    schedule.merge = true;
                    // Whoever asked may have given up.
                    let _ = reply.send(done.map(drop));
                }
                Some(Request::Stop) | None => return,
            },
            () = roller.log.fenced() => return,
            () = clock.sleep(LOOK_INTERVAL) => {
                let now = clock.monotonic();
                if now < schedule.pause {
                    continue;
                }
                match roller.step(&mut schedule, now).await {
                    Ok(()) => {}
                    Err(RollError::Fenced | RollError::Stopped) => return,
                    Err(error) => {
                        tracing::warn!(%error, "roll failed, trying again");
                        schedule.pause = clock.monotonic() + RETRY_PAUSE;
                    }
                }
            }
        }
    }
}

impl Roller {
    async fn step(&mut self, schedule: &mut Schedule, now: Instant) -> Result<(), RollError> {
        if now >= schedule.retention {
            schedule.retention = now + self.options.retention_interval;
            self.log.expire_producers();
            self.retain().await?;
        }
        // Whatever fails below: this is what makes room.
        if self.tidy_for(TIDY_SLICE).await > 0 {
            self.log.wal().look_at_space().await;
        }
        let mut due = self.is_round_full() || self.is_round_wanted_for_space();
        if now >= schedule.scan {
            schedule.scan = now + SCAN_INTERVAL;
            due |= self.is_round_due() || self.may_make_room();
            self.report(now);
            self.log.wal().look_if_space_was_low().await;
        }
        if now >= schedule.log_starts {
            schedule.log_starts = now + LOG_START_INTERVAL;
            due |= self.has_moved_log_start();
        }
        if due {
            let report = self.round().await?;
            schedule.merge = report.published;
        } else if schedule.merge {
            schedule.merge = self.merge_step().await? > 0;
        }
        if schedule.clean.is_some_and(|at| now >= at) {
            if self.clean_up().await? > 0 {
                self.log.wal().look_at_space().await;
            }
            let is_done = self.is_swept && self.cleanup.is_empty();
            schedule.clean = (!is_done).then(|| now + CLEAN_PAUSE);
        }
        Ok(())
    }

    fn report(&self, at: Instant) {
        let is_settled = !self.owes_checkpoint()
            && !self.may_trim()
            && self.gone().is_empty()
            && self.cleanup.is_empty()
            && self.pending.is_none();
        // A stopped log lists nothing.
        if self.still_leads().is_ok() {
            self.log.note_roll_state(RollState { at, is_settled });
        }
    }

    /// True if something waits that no amount of bytes will bring about: the first checkpoint after
    /// a takeover, old data, a deleted topic.
    fn is_round_due(&self) -> bool {
        if self.owes_checkpoint() || self.may_trim() || !self.gone().is_empty() {
            return true;
        }
        let interval = i64::try_from(self.options.interval.as_millis()).unwrap_or(i64::MAX);
        let now_ms = self.log.runtime().clock.now_ms();
        let oldest = self.oldest_to_roll_ms();
        oldest.is_some_and(|oldest| now_ms.saturating_sub(oldest) >= interval)
    }

    fn may_trim(&self) -> bool {
        self.owes_trim(self.capped(self.log.roll_cut()))
    }

    fn has_moved_log_start(&self) -> bool {
        let partitions = self.log.partitions();
        partitions.iter().any(|p| self.has_moved_start(p))
    }

    /// True if the newest checkpoint holds records that were deleted since.
    pub(super) fn has_moved_start(&self, partition: &Partition) -> bool {
        let known = self.known.get(&partition.id());
        // One that no checkpoint holds yet may have lost all its batches, unrolled.
        known.map_or(Offset(0), |known| known.log_start) < partition.log_start()
    }
}
