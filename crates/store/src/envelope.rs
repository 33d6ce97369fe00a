//! The header every stored object starts with.
//!
//! Scope: every object of every kind. Mutability: none, objects are immutable. Layout (little
//! endian, [`Envelope::LEN`] bytes), then the directory, then the bodies the directory describes:
//!
//! | bytes | field |
//! |---|---|
//! | 0-3 | magic `TDML` |
//! | 4 | object kind |
//! | 5 | version of the kind's layout |
//! | 6-7 | must-understand flags: an unknown bit stops the reader |
//! | 8-9 | may-ignore flags |
//! | 10 | codec of directory and bodies (0 = none) |
//! | 11 | reserved, 0 |
//! | 12-15 | key id for envelope encryption (0 = none) |
//! | 16-31 | put id |
//! | 32-47 | cluster id |
//! | 48-55 | writer id |
//! | 56-59 | directory length in bytes |
//! | 60-63 | CRC32C of the directory |
//! | 64-71 | length of the whole object in bytes |
//! | 72-75 | reserved, 0 |
//! | 76-79 | CRC32C of bytes 0-75 |

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// A random number that tells one logical write from another, the same for all its tries (R2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PutId(pub [u8; 16]);

impl fmt::Debug for PutId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PutId({self})")
    }
}

impl fmt::Display for PutId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Every kind of stored object. Discriminants are persisted and never renumbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ObjectKind {
    /// Guards the bucket: cluster id and format level. Key `root`. Created once, never deleted.
    Root = 1,
    /// One number of the metadata log, `meta/<n>`. Never trimmed.
    Metadata = 2,
    /// A snapshot of the metadata image. Immutable, named by the entry it follows.
    MetadataSnapshot = 3,
    /// One number of a writer's WAL: entries of all partitions it leads.
    Wal = 4,
    /// A WAL number closed by a sealer. Never deleted.
    ClosedMarker = 5,
    /// One number of a writer's checkpoint log.
    Checkpoint = 6,
    /// The last number of a checkpoint log, created by whoever closes it. Never deleted.
    ClosingCheckpoint = 7,
    /// Batches of one partition.
    Segment = 8,
    /// Batches of many partitions, sorted by partition.
    SetObject = 9,
    /// Extent lists of one or more partitions.
    Manifest = 10,
}

impl ObjectKind {
    /// The kind with this discriminant.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Root,
            2 => Self::Metadata,
            3 => Self::MetadataSnapshot,
            4 => Self::Wal,
            5 => Self::ClosedMarker,
            6 => Self::Checkpoint,
            7 => Self::ClosingCheckpoint,
            8 => Self::Segment,
            9 => Self::SetObject,
            10 => Self::Manifest,
            _ => return None,
        })
    }
}

/// Why bytes are not an object this broker can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvelopeError {
    /// Fewer bytes than the header or the directory needs, or than the header says.
    Truncated {
        /// Bytes needed.
        needed: u64,
        /// Bytes there.
        found: u64,
    },
    /// Does not start with the magic.
    NotOurs,
    /// A checksum does not match.
    Checksum {
        /// Which part.
        part: &'static str,
    },
    /// A kind, version, codec, key or must-understand flag of a newer broker.
    TooNew {
        /// What is unknown.
        what: String,
    },
    /// A kind other than the one asked for.
    WrongKind {
        /// The kind asked for.
        expected: ObjectKind,
        /// The kind found.
        found: ObjectKind,
    },
    /// The directory's contents make no sense.
    Malformed {
        /// What is wrong.
        what: String,
    },
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed, found } => {
                write!(f, "truncated: {found} bytes of {needed}")
            }
            Self::NotOurs => f.write_str("not a tidemill object"),
            Self::Checksum { part } => write!(f, "checksum of the {part} does not match"),
            Self::TooNew { what } => {
                write!(f, "{what} is unknown to this version; upgrade the broker")
            }
            Self::WrongKind { expected, found } => {
                write!(f, "expected a {expected:?}, found a {found:?}")
            }
            Self::Malformed { what } => write!(f, "malformed: {what}"),
        }
    }
}

impl std::error::Error for EnvelopeError {}

/// The header's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// What the object is.
    pub kind: ObjectKind,
    /// Version of the kind's layout, from 1.
    pub version: u8,
    /// Flags a reader must know.
    pub must_understand: u16,
    /// Flags a reader may ignore.
    pub may_ignore: u16,
    /// The write.
    pub put_id: PutId,
    /// The cluster.
    pub cluster_id: [u8; 16],
    /// The broker incarnation; 0 where none writes it (root).
    pub writer: u64,
}

impl Envelope {
    /// Length of the header in bytes.
    pub const LEN: usize = 80;
    const MAGIC: &'static [u8; 4] = b"TDML";

    /// Header and directory as bytes; `body_len` bytes of bodies follow.
    #[must_use]
    pub fn encode(&self, directory: &[u8], body_len: u64) -> Bytes {
        let mut out = BytesMut::with_capacity(Self::LEN + directory.len());
        out.put_slice(Self::MAGIC);
        out.put_u8(self.kind as u8);
        out.put_u8(self.version);
        out.put_u16_le(self.must_understand);
        out.put_u16_le(self.may_ignore);
        out.put_u16_le(0); // codec, reserved
        out.put_u32_le(0); // key id
        out.put_slice(&self.put_id.0);
        out.put_slice(&self.cluster_id);
        out.put_u64_le(self.writer);
        let directory_len = u32::try_from(directory.len()).expect("directories are below 4 GiB");
        out.put_u32_le(directory_len);
        out.put_u32_le(crc32c::crc32c(directory));
        out.put_u64_le(Self::LEN as u64 + directory.len() as u64 + body_len);
        out.put_u32_le(0);
        let crc = crc32c::crc32c(&out);
        out.put_u32_le(crc);
        out.put_slice(directory);
        out.freeze()
    }

    /// The put id of an object from its first bytes, if they are ours and long enough.
    /// Needs no valid checksum: it only tells writes apart.
    #[must_use]
    pub fn peek_put_id(bytes: &[u8]) -> Option<PutId> {
        let id = bytes.get(16..32)?;
        if !bytes.starts_with(Self::MAGIC) {
            return None;
        }
        Some(PutId(id.try_into().ok()?))
    }

    /// The put id of an object from its first bytes, if the header's checksum is right. Kind,
    /// version and flags may be unknown: whose write it is can be told all the same (R2).
    #[must_use]
    pub fn checked_put_id(bytes: &[u8]) -> Option<PutId> {
        let head = bytes.get(..Self::LEN)?;
        let crc = u32::from_le_bytes([head[76], head[77], head[78], head[79]]);
        if crc32c::crc32c(&head[..76]) != crc {
            return None;
        }
        Self::peek_put_id(head)
    }

    /// True if the bytes are as long as the header says and the directory's checksum is right.
    /// Says nothing about the bodies.
    #[must_use]
    pub fn is_whole(bytes: &[u8]) -> bool {
        let Some(head) = bytes.get(..Self::LEN) else {
            return false;
        };
        let field =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (directory_len, directory_crc) = (field(56) as usize, field(60));
        let object_len = u64::from(field(64)) | u64::from(field(68)) << 32;
        let directory = bytes.get(Self::LEN..Self::LEN + directory_len);
        object_len == bytes.len() as u64
            && directory.is_some_and(|directory| crc32c::crc32c(directory) == directory_crc)
    }

    /// Reads the header alone; returns it with the directory's length and the object's length.
    ///
    /// # Errors
    /// [`EnvelopeError`] if the bytes are short, foreign, damaged or newer than this broker.
    pub fn decode_header(bytes: &[u8]) -> Result<(Self, u32, u64), EnvelopeError> {
        let Some(head) = bytes.get(..Self::LEN) else {
            return Err(EnvelopeError::Truncated {
                needed: Self::LEN as u64,
                found: bytes.len() as u64,
            });
        };
        if !head.starts_with(Self::MAGIC) {
            return Err(EnvelopeError::NotOurs);
        }
        let crc = u32::from_le_bytes([head[76], head[77], head[78], head[79]]);
        if crc32c::crc32c(&head[..76]) != crc {
            return Err(EnvelopeError::Checksum { part: "header" });
        }
        let mut fields = &head[4..76];
        let kind_code = fields.get_u8();
        let version = fields.get_u8();
        let must_understand = fields.get_u16_le();
        let may_ignore = fields.get_u16_le();
        let codec = fields.get_u8();
        let _reserved = fields.get_u8();
        let key_id = fields.get_u32_le();
        if codec != 0 {
            return Err(EnvelopeError::TooNew {
                what: format!("codec {codec}"),
            });
        }
        if key_id != 0 {
            return Err(EnvelopeError::TooNew {
                what: format!("encryption key {key_id}"),
            });
        }
        let Some(kind) = ObjectKind::from_code(kind_code) else {
            return Err(EnvelopeError::TooNew {
                what: format!("object kind {kind_code}"),
            });
        };
        if must_understand != 0 {
            let what = format!("must-understand flags {must_understand:#06x}");
            return Err(EnvelopeError::TooNew { what });
        }
        let mut put_id = [0; 16];
        fields.copy_to_slice(&mut put_id);
        let mut cluster_id = [0; 16];
        fields.copy_to_slice(&mut cluster_id);
        let writer = fields.get_u64_le();
        let directory_len = fields.get_u32_le();
        let _directory_crc = fields.get_u32_le();
        let object_len = fields.get_u64_le();
        let put_id = PutId(put_id);
        let envelope = Self {
            kind,
            version,
            must_understand,
            may_ignore,
            put_id,
            cluster_id,
            writer,
        };
        Ok((envelope, directory_len, object_len))
    }

    /// Reads header and directory from the first bytes of an object of `kind`, at most `version`.
    /// The directory is a slice of `bytes`; bodies need not be there.
    ///
    /// # Errors
    /// [`EnvelopeError`] if the bytes are short, foreign, damaged, newer, or of another kind.
    pub fn decode(
        bytes: &Bytes,
        kind: ObjectKind,
        version: u8,
    ) -> Result<(Self, Bytes), EnvelopeError> {
        let (envelope, directory_len, _object_len) = Self::decode_header(bytes)?;
        if envelope.kind != kind {
            return Err(EnvelopeError::WrongKind {
                expected: kind,
                found: envelope.kind,
            });
        }
        if envelope.version > version {
            let what = format!("version {} of {kind:?}", envelope.version);
            return Err(EnvelopeError::TooNew { what });
        }
        let end = Self::LEN + directory_len as usize;
        if bytes.len() < end {
            let found = bytes.len() as u64;
            return Err(EnvelopeError::Truncated {
                needed: end as u64,
                found,
            });
        }
        let directory = bytes.slice(Self::LEN..end);
        let crc = u32::from_le_bytes([bytes[60], bytes[61], bytes[62], bytes[63]]);
        if crc32c::crc32c(&directory) != crc {
            return Err(EnvelopeError::Checksum { part: "directory" });
        }
        Ok((envelope, directory))
    }

    /// As [`Envelope::decode`], of an object that is read as a whole: not a byte may follow.
    ///
    /// # Errors
    /// As [`Envelope::decode`], and those of [`Envelope::check_len`].
    pub fn decode_whole(
        bytes: &Bytes,
        kind: ObjectKind,
        version: u8,
    ) -> Result<(Self, Bytes), EnvelopeError> {
        let decoded = Self::decode(bytes, kind, version)?;
        let (_, _, object_len) = Self::decode_header(bytes)?;
        Self::check_len(object_len, bytes.len() as u64)?;
        Ok(decoded)
    }

    /// An object whose header says `object_len` has `found` bytes.
    ///
    /// # Errors
    /// It is shorter, or bytes follow its end: what they are nobody can tell, so the object counts
    /// as damaged in every format.
    pub fn check_len(object_len: u64, found: u64) -> Result<(), EnvelopeError> {
        match found.checked_sub(object_len) {
            Some(0) => Ok(()),
            Some(more) => Err(EnvelopeError::Malformed {
                what: format!("{more} bytes follow its end"),
            }),
            None => Err(EnvelopeError::Truncated {
                needed: object_len,
                found,
            }),
        }
    }
}
