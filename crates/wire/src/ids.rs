//! Newtypes for what must never be mixed up. All are plain values; none is validated by itself.

use std::fmt;

macro_rules! newtype {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

newtype!(/// A record's position in its partition.
    Offset(i64));
newtype!(/// The tenure of a partition's leader; grows by one with every change of leader.
    LeaderEpoch(i32));
newtype!(/// An idempotent or transactional producer.
    ProducerId(i64));
newtype!(/// The incarnation of a producer id (Kafka: int16).
    ProducerEpoch(i16));
newtype!(/// A broker incarnation: the number of its registration in the metadata log.
    WriterId(u64));
newtype!(/// A Kafka broker id (`node.id`). Not a writer id.
    NodeId(i32));

impl Offset {
    /// The offset `count` records further.
    #[must_use]
    pub const fn plus(self, count: i64) -> Self {
        Self(self.0 + count)
    }
}

impl ProducerId {
    /// Kafka's "no producer".
    pub const NONE: Self = Self(-1);
}

/// A topic's id: a random UUID, never all zero.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// Kafka's "no id".
    pub const ZERO: Self = Self([0; 16]);
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({self})")
    }
}

/// Lower-case hexadecimal with the UUID's hyphens.
impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// One partition of one topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    /// The topic.
    pub topic: TopicId,
    /// The partition's index, from 0.
    pub index: i32,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.index)
    }
}
