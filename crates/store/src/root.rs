//! The object `root`, which guards a bucket, and the checks at start.
//!
//! Scope: the whole bucket prefix. Mutability: created once, never replaced or deleted. Layout: the
//! envelope (kind `Root`, version 1, writer 0) and a directory (little endian) without bodies:
//!
//! | bytes | field |
//! |---|---|
//! | 0-3 | format level |
//! | 4-11 | when it was created, Unix milliseconds |
//! | 12-13 | length of what follows |
//! | .. | version of the software that created it, UTF-8 |

use std::{fmt, future::Future, time::Duration};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tidemill_runtime::Instant;

use crate::{
    backend::PutAnswer,
    envelope::{Envelope, EnvelopeError, ObjectKind, PutId},
    error::{StoreError, StoreErrorKind},
    numbered::CreateOutcome,
    store::Store,
};

/// The key of `root`.
pub const ROOT_KEY: &str = "root";
/// The newest format level this version reads and writes.
pub const FORMAT_LEVEL: u32 = 1;
/// Version of `root`'s own layout.
const VERSION: u8 = 1;
/// Between two log lines while a start waits.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// A request that is sent gets at least so long, even at the end of a start's patience.
const ANSWER_MIN: Duration = Duration::from_secs(2);
/// Between two tries while a start waits.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// Before a refusal is asked for once more.
const CONFIRM_AFTER: Duration = Duration::from_millis(200);
/// Reads of a damaged `root` before it is believed to be damaged.
const DAMAGED_READS: u32 = 3;

/// What `root` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The cluster's id.
    pub cluster_id: [u8; 16],
    /// The level of all formats in the bucket.
    pub format_level: u32,
    /// When it was created, Unix milliseconds.
    pub created_ms: i64,
    /// What created it, such as `0.1.0`.
    pub created_by: String,
}

/// Why a start cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootError {
    /// The store refuses, and has been asked twice.
    Refused {
        /// The store.
        store: String,
        /// What it said.
        error: Box<StoreError>,
    },
    /// The store could not be used within the time given.
    TimedOut {
        /// The store.
        store: String,
        /// The time given.
        waited: Duration,
        /// The last answer.
        error: Box<StoreError>,
    },
    /// There are objects but no `root`.
    Occupied {
        /// The store.
        store: String,
        /// One of them.
        key: String,
    },
    /// There is no `root` (and nothing may be written).
    Missing {
        /// The store.
        store: String,
    },
    /// `root` is not one of ours or damaged.
    Invalid {
        /// The store.
        store: String,
        /// What is wrong with it.
        error: EnvelopeError,
    },
    /// `root` was written by a newer version.
    TooNew {
        /// The store.
        store: String,
        /// What is unknown.
        what: String,
    },
    /// The bucket belongs to another cluster.
    OtherCluster {
        /// The store.
        store: String,
        /// Its cluster's id, as hexadecimal digits.
        found: String,
        /// The one in the settings.
        wanted: String,
    },
    /// The store created an object that was there.
    ConditionIgnored {
        /// The store.
        store: String,
    },
}

impl fmt::Display for RootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { store, error } => {
                write!(f, "`{store}` cannot be used: {error}")?;
                f.write_str(hint(error.code.as_deref().unwrap_or("")))
            }
            Self::TimedOut {
                store,
                waited,
                error,
            } => {
                let waited = waited.as_millis();
                write!(f, "`{store}` could not be used within {waited} ms: {error}")
            }
            Self::Occupied { store, key } => write!(
                f,
                "`{store}` holds something else (such as `{key}`) and no `root` of tidemill; name \
                 an empty directory or prefix"
            ),
            Self::Missing { store } => write!(f, "`{store}` holds no `root`: nothing of tidemill"),
            Self::Invalid { store, error } => {
                write!(f, "`root` in `{store}` is not usable: {error}")
            }
            Self::TooNew { store, what } => write!(
                f,
                "`{store}` was written by a newer version ({what}); upgrade this tidemill"
            ),
            Self::OtherCluster {
                store,
                found,
                wanted,
            } => write!(
                f,
                "`{store}` belongs to cluster {found}, but `cluster.id` is {wanted}"
            ),
            Self::ConditionIgnored { store } => write!(
                f,
                "`{store}` overwrites objects although told not to (it ignores \
                 `If-None-Match: *`); nothing is lost, but such a store cannot hold a log"
            ),
        }
    }
}

impl std::error::Error for RootError {}

fn hint(code: &str) -> &'static str {
    match code {
        "NoSuchBucket" | "ContainerNotFound" => "; create the bucket first, or correct `--data`",
        "InvalidAccessKeyId" => {
            "; correct `AWS_ACCESS_KEY_ID`, or `AWS_ENDPOINT_URL` if it is \
                                 another store's key"
        }
        "SignatureDoesNotMatch" => "; correct `AWS_SECRET_ACCESS_KEY`",
        "AccessDenied" => "; allow these credentials to list, get, put and delete there",
        _ => "",
    }
}

fn hex(id: &[u8; 16]) -> String {
    PutId(*id).to_string()
}

impl Root {
    /// The object's bytes.
    #[must_use]
    pub fn encode(&self, put_id: PutId) -> Bytes {
        let mut directory = BytesMut::new();
        directory.put_u32_le(self.format_level);
        directory.put_i64_le(self.created_ms);
        let software = self.created_by.as_bytes();
        let software = &software[..software.len().min(usize::from(u16::MAX))];
        directory.put_u16_le(u16::try_from(software.len()).unwrap_or(u16::MAX));
        directory.put_slice(software);
        let envelope = Envelope {
            kind: ObjectKind::Root,
            version: VERSION,
            must_understand: 0,
            may_ignore: 0,
            put_id,
            cluster_id: self.cluster_id,
            writer: 0,
        };
        envelope.encode(&directory, 0)
    }

    /// Reads the object's bytes. What the directory holds behind the known fields is passed over.
    ///
    /// # Errors
    /// [`EnvelopeError`] if they are not a `root` of a known layout.
    pub fn decode(bytes: &Bytes) -> Result<Self, EnvelopeError> {
        let (envelope, mut directory) = Envelope::decode_whole(bytes, ObjectKind::Root, VERSION)?;
        let short = || EnvelopeError::Malformed {
            what: "the directory is short".to_owned(),
        };
        if directory.len() < 14 {
            return Err(short());
        }
        let format_level = directory.get_u32_le();
        let created_ms = directory.get_i64_le();
        let len = usize::from(directory.get_u16_le());
        let software = directory.get(..len).ok_or_else(short)?;
        let created_by = String::from_utf8_lossy(software).into_owned();
        Ok(Self {
            cluster_id: envelope.cluster_id,
            format_level,
            created_ms,
            created_by,
        })
    }
}

/// Codes that end a start when confirmed; everything else is waited out.
fn is_fatal(store: &Store, error: &StoreError) -> bool {
    const CODES: [&str; 8] = [
        "NoSuchBucket",
        "ContainerNotFound",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "AccessDenied",
        "AuthenticationFailed",
        "AuthorizationFailure",
        "AuthorizationPermissionMismatch",
    ];
    let code = error.code.as_deref().unwrap_or("");
    error.kind == StoreErrorKind::Refused && (store.is_local() || CODES.contains(&code))
}

/// A start's patience with its store.
struct Start<'a> {
    store: &'a Store,
    began: Instant,
    patience: Duration,
    last_line: Option<Instant>,
}

impl<'a> Start<'a> {
    fn new(store: &'a Store, patience: Duration) -> Self {
        Self {
            store,
            began: store.runtime().clock.monotonic(),
            patience,
            last_line: None,
        }
    }

    fn name(&self) -> String {
        self.store.describe()
    }

    /// Repeats a request until it has an answer: a value, or an error that is one (`NotFound`,
    /// `Invalid`).
    async fn answer<T, F, R>(&mut self, mut request: F) -> Result<Result<T, StoreError>, RootError>
    where
        F: FnMut() -> R,
        R: Future<Output = Result<T, StoreError>>,
    {
        let clock = &self.store.runtime().clock;
        let mut refused_before = false;
        loop {
            let error = match self.patiently(request()).await? {
                Ok(value) => return Ok(Ok(value)),
                Err(error) => error,
            };
            if matches!(
                error.kind,
                StoreErrorKind::NotFound | StoreErrorKind::Invalid
            ) {
                return Ok(Err(error));
            }
            let fatal = is_fatal(self.store, &error);
            if fatal && refused_before {
                return Err(RootError::Refused {
                    store: self.name(),
                    error: error.into(),
                });
            }
            refused_before = fatal;
            let now = clock.monotonic();
            if now - self.began >= self.patience {
                return Err(RootError::TimedOut {
                    store: self.name(),
                    waited: self.patience,
                    error: error.into(),
                });
            }
            if fatal {
                clock.sleep(CONFIRM_AFTER).await;
                continue;
            }
            self.tell(&error, now);
            clock.sleep(RETRY_EVERY).await;
        }
    }

    /// The answer to one request. A store that takes requests and is silent is waited for in the
    /// same way as one that refuses them.
    async fn patiently<T>(
        &mut self,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Result<T, StoreError>, RootError> {
        let clock = &self.store.runtime().clock;
        let mut request = std::pin::pin!(request);
        loop {
            let left = (self.began + self.patience).saturating_duration_since(clock.monotonic());
            let wait = left.clamp(ANSWER_MIN, LINE_EVERY);
            if let Ok(answer) = clock.timeout(wait, &mut request).await {
                return Ok(answer);
            }
            let now = clock.monotonic();
            let error = StoreError::new(StoreErrorKind::Unknown, "request", ROOT_KEY, "no answer");
            if now - self.began >= self.patience {
                return Err(RootError::TimedOut {
                    store: self.name(),
                    waited: self.patience,
                    error: error.into(),
                });
            }
            self.tell(&error, now);
        }
    }

    /// A line now and then about what the start waits for.
    fn tell(&mut self, error: &StoreError, now: Instant) {
        if self.last_line.is_none_or(|last| now - last >= LINE_EVERY) {
            self.last_line = Some(now);
            let left_ms = (self.patience - (now - self.began)).as_millis();
            let left_ms = u64::try_from(left_ms).unwrap_or(u64::MAX);
            tracing::warn!(store = self.name(), %error, left_ms, "waiting for the store");
        }
    }

    /// Waits before looking again.
    async fn pause(&self) -> Result<(), RootError> {
        let clock = &self.store.runtime().clock;
        if clock.monotonic() - self.began >= self.patience {
            let message = "it is listed but cannot be read";
            let error = StoreError::new(StoreErrorKind::NotFound, "get", ROOT_KEY, message);
            let (store, waited) = (self.name(), self.patience);
            return Err(RootError::TimedOut {
                store,
                waited,
                error: error.into(),
            });
        }
        clock.sleep(RETRY_EVERY).await;
        Ok(())
    }

    /// Reads `root`; `None` if there is none.
    async fn read(&mut self) -> Result<Option<(Root, Bytes)>, RootError> {
        let mut reads = 0;
        loop {
            let shared = self.store.shared.clone();
            let bytes = match self.answer(|| shared.get_try(ROOT_KEY, None)).await? {
                Ok(bytes) => bytes,
                Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(None),
                Err(error) => {
                    return Err(RootError::Refused {
                        store: self.name(),
                        error: error.into(),
                    });
                }
            };
            reads += 1;
            match self.judge(&bytes) {
                Ok(root) => return Ok(Some((root, bytes))),
                // Once more: what was read may be damaged and not what is stored.
                Err(RootError::Invalid { .. }) if reads < DAMAGED_READS => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn judge(&self, bytes: &Bytes) -> Result<Root, RootError> {
        let root = Root::decode(bytes).map_err(|error| match error {
            EnvelopeError::TooNew { what } => RootError::TooNew {
                store: self.name(),
                what,
            },
            error => RootError::Invalid {
                store: self.name(),
                error,
            },
        })?;
        if root.format_level > FORMAT_LEVEL {
            let what = format!(
                "format level {}, this one knows {FORMAT_LEVEL}",
                root.format_level
            );
            return Err(RootError::TooNew {
                store: self.name(),
                what,
            });
        }
        Ok(root)
    }

    /// The key of any object.
    async fn any_key(&mut self) -> Result<Option<String>, RootError> {
        let shared = self.store.shared.clone();
        match self.answer(|| shared.list_try("", None, 1)).await? {
            Ok(page) => Ok(page.into_iter().next().map(|meta| meta.key)),
            // A key that cannot be one of ours.
            Err(error) if error.kind == StoreErrorKind::Invalid => Ok(Some(error.message)),
            Err(_) => Ok(None),
        }
    }

    /// Creates `root` in an empty prefix; returns what is there then.
    async fn adopt(&mut self, cluster_id: Option<[u8; 16]>) -> Result<(Root, Bytes), RootError> {
        let runtime = self.store.runtime();
        let root = Root {
            cluster_id: cluster_id.unwrap_or_else(|| runtime.entropy.uuid()),
            format_level: FORMAT_LEVEL,
            created_ms: runtime.clock.now_ms(),
            created_by: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let put_id = PutId(runtime.entropy.bytes16());
        let bytes = root.encode(put_id);
        let store = self.store.clone();
        let create = || store.create(ROOT_KEY, bytes.clone().into(), put_id, Some(LINE_EVERY));
        match self.answer(create).await? {
            Ok(CreateOutcome::Ours) => Ok((root, bytes)),
            // Another broker adopted it at the same time.
            Ok(CreateOutcome::Foreign(bytes)) => Ok((self.judge(&bytes)?, bytes)),
            Err(error) => Err(RootError::Refused {
                store: self.name(),
                error: error.into(),
            }),
        }
    }

    /// The same bytes again must be refused.
    async fn check_condition(&mut self, bytes: &Bytes) -> Result<(), RootError> {
        let shared = self.store.shared.clone();
        match self
            .answer(|| shared.put_try(ROOT_KEY, bytes.clone().into()))
            .await?
        {
            Ok(PutAnswer::Exists) => Ok(()),
            Ok(PutAnswer::Created) => Err(RootError::ConditionIgnored { store: self.name() }),
            Err(error) => Err(RootError::Refused {
                store: self.name(),
                error: error.into(),
            }),
        }
    }
}

/// Finds or creates `root` and checks that the store can hold a log, within `patience`
/// (`tidemill.start.timeout.ms`).
///
/// # Errors
/// [`RootError`], each a reason to end the process.
pub async fn open_root(
    store: &Store,
    cluster_id: Option<[u8; 16]>,
    patience: Duration,
) -> Result<Root, RootError> {
    let mut start = Start::new(store, patience);
    let (root, bytes) = loop {
        if let Some(found) = start.read().await? {
            break found;
        }
        match start.any_key().await? {
            None => break start.adopt(cluster_id).await?,
            // Created by another broker meanwhile, or a listing and a read that disagree.
            Some(key) if key == ROOT_KEY => start.pause().await?,
            // Others sort before it, so look for `root` once more: it may be new as well.
            Some(key) => match start.read().await? {
                Some(found) => break found,
                None => {
                    return Err(RootError::Occupied {
                        store: start.name(),
                        key,
                    });
                }
            },
        }
    };
    if let Some(wanted) = cluster_id.filter(|wanted| *wanted != root.cluster_id) {
        let (found, wanted) = (hex(&root.cluster_id), hex(&wanted));
        return Err(RootError::OtherCluster {
            store: start.name(),
            found,
            wanted,
        });
    }
    start.check_condition(&bytes).await?;
    Ok(root)
}

/// Reads `root` without writing anything: for `fsck` and `inspect`.
///
/// # Errors
/// [`RootError`], `Missing` if there is none.
pub async fn read_root(store: &Store, patience: Duration) -> Result<Root, RootError> {
    let mut start = Start::new(store, patience);
    match start.read().await? {
        Some((root, _)) => Ok(root),
        None => Err(RootError::Missing {
            store: start.name(),
        }),
    }
}
