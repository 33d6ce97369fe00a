//! The broker's settings, typed.

use std::net::SocketAddr;
use std::time::Duration;

use tidemill_cluster::image::Configs;
use tidemill_log::{Latency, LogLimits, read::ReadOptions, roll::RollOptions};
use tidemill_store::LocalSync;
use tidemill_wire::Str;
use tidemill_wire::ids::NodeId;

use super::alter::{AlterError, check_internal_topic, new_topic};
use super::error::ConfigError;
use super::listeners::{self, Listener};
use super::settings::{Host, REQUEST_MEMORY_SHARE, Settings};
use super::topic::TopicConfig;
use super::value::Value;
use crate::net::NetLimits;
use crate::topics::is_internal;

/// Share of `tidemill.memory.bytes` that is left for objects on their way into the store: tail,
/// block cache, pending bytes and large requests take 7, 4, 2 and 1 sixteenths by default.
const ROLL_MEMORY_SHARE: u64 = 8;

/// Limits of classic groups and their offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// `group.initial.rebalance.delay.ms`.
    pub initial_rebalance_delay_ms: i32,
    /// `group.min.session.timeout.ms`.
    pub session_timeout_min_ms: i32,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_max_ms: i32,
    /// `group.max.size`.
    pub size_max: usize,
    /// `offset.metadata.max.bytes`.
    pub offset_metadata_max_bytes: usize,
    /// `offsets.retention.minutes`.
    pub offsets_retention: Duration,
    /// `offsets.retention.check.interval.ms`.
    pub offsets_check_interval: Duration,
    /// `offsets.topic.num.partitions`.
    pub offsets_partitions: i32,
}

/// The broker's settings in force from its start. Dynamic ones only give topics their defaults,
/// see [`BrokerConfig::topic`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerConfig {
    /// As given, for DescribeConfigs.
    pub settings: Settings,
    /// `node.id`.
    pub node_id: NodeId,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// `cluster.id`.
    pub cluster_id: Option<String>,
    /// `tidemill.data`.
    pub data_location: String,
    /// `listeners`, each with what clients are told.
    pub listeners: Vec<(Listener, Listener)>,
    /// `tidemill.admin.listen`; none if empty.
    pub admin_listen: Option<SocketAddr>,
    /// `socket.receive.buffer.bytes`; none is the system's own.
    pub receive_buffer_bytes: Option<u32>,
    /// `socket.send.buffer.bytes`; none is the system's own.
    pub send_buffer_bytes: Option<u32>,
    /// `socket.request.max.bytes`.
    pub request_max_bytes: usize,
    /// Memory for large requests in bytes (`queued.max.request.bytes`).
    pub request_memory_bytes: usize,
    /// `connections.max.idle.ms`.
    pub idle_max: Duration,
    /// `max.connections`.
    pub connections_max: usize,
    /// `fetch.max.bytes`.
    pub fetch_max_bytes: usize,
    /// `max.incremental.fetch.session.cache.slots`.
    pub fetch_sessions_max: usize,
    /// `max.request.partition.size.limit`.
    pub described_partitions_max: usize,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// `delete.topic.enable`.
    pub delete_topics: bool,
    /// `default.replication.factor`.
    pub default_replication_factor: i16,
    /// `num.partitions`.
    pub num_partitions: i32,
    /// `log.retention.check.interval.ms`.
    pub retention_check_interval: Duration,
    /// Groups and offsets.
    pub groups: GroupSettings,
    /// `producer.id.expiration.ms`.
    pub producer_expiration: Duration,
    /// `local.sync`.
    pub local_sync: LocalSync,
    /// `tidemill.local.free.bytes.min`.
    pub local_free_bytes_min: u64,
    /// `tidemill.memory.bytes`.
    pub memory_bytes: u64,
    /// `tidemill.pending.bytes`.
    pub pending_bytes: u64,
    /// `tidemill.cache.tail.bytes`.
    pub tail_cache_bytes: u64,
    /// `tidemill.cache.block.bytes`.
    pub block_cache_bytes: u64,
    /// `tidemill.latency`, of topics that have none.
    pub latency: Latency,
    /// `tidemill.roll.bytes`.
    pub roll_bytes: u64,
    /// `tidemill.roll.interval.ms`.
    pub roll_interval: Duration,
    /// `tidemill.shutdown.timeout.ms`.
    pub shutdown_timeout: Duration,
    /// `tidemill.start.timeout.ms`.
    pub start_timeout: Duration,
}

impl BrokerConfig {
    /// Reads the typed form.
    ///
    /// # Errors
    /// What no definition of a single setting can refuse: listeners that clients could not reach
    /// or that are not served yet, settings that contradict each other.
    pub fn new(settings: Settings) -> Result<Self, ConfigError> {
        let get = Typed(&settings);
        let groups = groups(&get)?;
        Ok(Self {
            node_id: node_id(&get)?,
            rack: get.optional("broker.rack").filter(|rack| !rack.is_empty()),
            cluster_id: get.optional("cluster.id"),
            data_location: get.text("tidemill.data")?,
            listeners: listeners::resolve(&settings)?,
            admin_listen: admin_listen(&get)?,
            receive_buffer_bytes: get.buffer("socket.receive.buffer.bytes")?,
            send_buffer_bytes: get.buffer("socket.send.buffer.bytes")?,
            request_max_bytes: get.size("socket.request.max.bytes")?,
            request_memory_bytes: request_memory(&get)?,
            idle_max: get.span("connections.max.idle.ms")?,
            connections_max: get.size("max.connections")?,
            fetch_max_bytes: get.size("fetch.max.bytes")?,
            fetch_sessions_max: get.size("max.incremental.fetch.session.cache.slots")?,
            described_partitions_max: get.size("max.request.partition.size.limit")?,
            auto_create_topics: get.boolean("auto.create.topics.enable")?,
            delete_topics: get.boolean("delete.topic.enable")?,
            default_replication_factor: get.number("default.replication.factor")?,
            num_partitions: get.number("num.partitions")?,
            retention_check_interval: get.span("log.retention.check.interval.ms")?,
            groups,
            producer_expiration: get.span("producer.id.expiration.ms")?,
            local_sync: match get.text("local.sync")?.as_str() {
                "os" => LocalSync::Os,
                _ => LocalSync::Always,
            },
            local_free_bytes_min: get.number("tidemill.local.free.bytes.min")?,
            memory_bytes: get.number("tidemill.memory.bytes")?,
            pending_bytes: get.number("tidemill.pending.bytes")?,
            tail_cache_bytes: get.number("tidemill.cache.tail.bytes")?,
            block_cache_bytes: get.number("tidemill.cache.block.bytes")?,
            latency: latency(&get.text("tidemill.latency")?),
            roll_bytes: get.number("tidemill.roll.bytes")?,
            roll_interval: get.span("tidemill.roll.interval.ms")?,
            shutdown_timeout: get.span("tidemill.shutdown.timeout.ms")?,
            start_timeout: get.span("tidemill.start.timeout.ms")?,
            settings,
        })
    }

    /// Checks the configurations of a topic to be created and brings their values into the form
    /// in which they are stored. Only internal topics may be compacted yet.
    ///
    /// # Errors
    /// INVALID_CONFIG (K90).
    pub fn check_topic_configs(&self, name: &str, configs: &mut Configs) -> Result<(), AlterError> {
        let none = Configs::new();
        let view = self.settings.with(&none, &none);
        let checked = if is_internal(name) {
            check_internal_topic(configs, &view)?
        } else {
            let pairs = configs
                .iter()
                .map(|(name, value)| (name.as_str(), Some(value.as_str())));
            new_topic(pairs, &view)?
        };
        *configs = checked;
        Ok(())
    }

    /// The rack, as messages take it.
    #[must_use]
    pub fn rack(&self) -> Option<Str> {
        self.rack.clone().map(Str::from)
    }

    /// A topic's settings: its own over the dynamic ones of this broker, those of all brokers,
    /// and those from its start.
    #[must_use]
    pub fn topic(&self, own: &Configs, default: &Configs, broker: &Configs) -> TopicConfig {
        TopicConfig::new(own, &self.settings.with(default, broker))
    }

    /// The limits of the log, for the kind of store that the data is on.
    #[must_use]
    pub fn log_limits(&self) -> LogLimits {
        let limits = if self.settings.is_local() {
            LogLimits::local()
        } else {
            LogLimits::bucket()
        };
        LogLimits {
            pending_bytes_max: self.pending_bytes,
            tail_bytes_max: self.tail_cache_bytes,
            producer_expiration: self.producer_expiration,
            free_bytes_min: self.local_free_bytes_min,
            read: ReadOptions {
                cache_bytes: self.block_cache_bytes,
                ..limits.read
            },
            roll: self.roll_options(limits.roll.clone()),
            ..limits
        }
    }

    /// Objects being written are held in memory: as many as are under way, one that is filled and
    /// the set object share what the other settings leave of `tidemill.memory.bytes`.
    fn roll_options(&self, default: RollOptions) -> RollOptions {
        let held = default.uploads as u64 + 2;
        let share = self.memory_bytes / ROLL_MEMORY_SHARE / held;
        let at_most = |bytes: u64| bytes.min(share.max(default.segment_bytes_min));
        RollOptions {
            bytes: self.roll_bytes,
            interval: self.roll_interval,
            retention_interval: self.retention_check_interval,
            segment_bytes_max: at_most(default.segment_bytes_max),
            set_bytes_max: at_most(default.set_bytes_max),
            ..default
        }
    }

    /// Listeners that other machines can reach, for the warning that nobody is asked who he is.
    pub fn exposed(&self) -> impl Iterator<Item = &Listener> {
        let listeners = self.listeners.iter().map(|(listener, _)| listener);
        listeners.filter(|listener| !listener.is_loopback())
    }
}

/// All defaults, on a machine with 1 GiB.
impl Default for BrokerConfig {
    fn default() -> Self {
        let settings = Settings::new(
            &[],
            Host {
                memory_bytes: 1 << 30,
            },
        );
        settings
            .and_then(Self::new)
            .expect("a test builds the defaults, which know no input")
    }
}

impl From<&BrokerConfig> for NetLimits {
    fn from(config: &BrokerConfig) -> Self {
        Self {
            request_max_bytes: config.request_max_bytes,
            request_memory_bytes: config.request_memory_bytes,
            idle_max: config.idle_max,
            connections_max: config.connections_max,
            ..Self::default()
        }
    }
}

pub(super) fn latency(text: &str) -> Latency {
    match text {
        "low" => Latency::Low,
        "economy" => Latency::Economy,
        _ => Latency::Balanced,
    }
}

/// What no setting says is worked out.
fn request_memory(get: &Typed<'_>) -> Result<usize, ConfigError> {
    let bytes: i64 = get.number("queued.max.request.bytes")?;
    let memory: u64 = get.number("tidemill.memory.bytes")?;
    let bytes = u64::try_from(bytes).unwrap_or(memory / REQUEST_MEMORY_SHARE);
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX >> 3))
}

fn node_id(get: &Typed<'_>) -> Result<NodeId, ConfigError> {
    let older: i32 = get.number("broker.id")?;
    let given = get.0.given("node.id").is_some();
    let node: i32 = get.number("node.id")?;
    match older {
        ..0 => Ok(NodeId(node)),
        older if given && older != node => {
            let reason = format!("contradicts `node.id` = `{node}`");
            Err(get.0.error("broker.id", reason))
        }
        older => Ok(NodeId(older)),
    }
}

fn admin_listen(get: &Typed<'_>) -> Result<Option<SocketAddr>, ConfigError> {
    const NAME: &str = "tidemill.admin.listen";
    let text = get.text(NAME)?;
    if text.is_empty() {
        return Ok(None);
    }
    let text = text.replace("localhost:", "127.0.0.1:");
    let refuse = |_| {
        get.0
            .error(NAME, "must be an address and a port, or empty".to_owned())
    };
    text.parse().map(Some).map_err(refuse)
}

fn groups(get: &Typed<'_>) -> Result<GroupSettings, ConfigError> {
    let groups = GroupSettings {
        initial_rebalance_delay_ms: get.number("group.initial.rebalance.delay.ms")?,
        session_timeout_min_ms: get.number("group.min.session.timeout.ms")?,
        session_timeout_max_ms: get.number("group.max.session.timeout.ms")?,
        size_max: get.size("group.max.size")?,
        offset_metadata_max_bytes: get.size("offset.metadata.max.bytes")?,
        offsets_retention: get.span_of("offsets.retention.minutes", 60_000)?,
        offsets_check_interval: get.span("offsets.retention.check.interval.ms")?,
        offsets_partitions: get.number("offsets.topic.num.partitions")?,
    };
    if groups.session_timeout_min_ms > groups.session_timeout_max_ms {
        let max = groups.session_timeout_max_ms;
        let reason = format!("exceeds `group.max.session.timeout.ms` = `{max}`");
        return Err(get.0.error("group.min.session.timeout.ms", reason));
    }
    Ok(groups)
}

/// Settings by type. Errors only for a definition that does not fit its use here.
struct Typed<'a>(&'a Settings);

impl Typed<'_> {
    fn missing(&self, name: &str) -> ConfigError {
        self.0.error(name, "has no usable value".to_owned())
    }

    fn optional(&self, name: &str) -> Option<String> {
        match self.0.value(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn text(&self, name: &str) -> Result<String, ConfigError> {
        self.optional(name).ok_or_else(|| self.missing(name))
    }

    fn boolean(&self, name: &str) -> Result<bool, ConfigError> {
        match self.0.value(name) {
            Some(Value::Boolean(value)) => Ok(value),
            _ => Err(self.missing(name)),
        }
    }

    fn number<T: TryFrom<i64>>(&self, name: &str) -> Result<T, ConfigError> {
        let number = match self.0.value(name) {
            Some(Value::Number(number)) => T::try_from(number).ok(),
            _ => None,
        };
        number.ok_or_else(|| self.missing(name))
    }

    fn size(&self, name: &str) -> Result<usize, ConfigError> {
        self.number(name)
    }

    /// Bytes of a socket's buffer; -1 is the system's own number.
    fn buffer(&self, name: &str) -> Result<Option<u32>, ConfigError> {
        Ok(u32::try_from(self.number::<i64>(name)?).ok())
    }

    /// Milliseconds; -1 is for ever.
    fn span(&self, name: &str) -> Result<Duration, ConfigError> {
        self.span_of(name, 1)
    }

    fn span_of(&self, name: &str, unit_ms: u64) -> Result<Duration, ConfigError> {
        match self.number::<i64>(name)? {
            ..0 => Ok(FOREVER),
            number => Ok(
                Duration::from_millis(number.unsigned_abs().saturating_mul(unit_ms)).min(FOREVER),
            ),
        }
    }
}

/// As long as a deadline can lie ahead without overflowing any clock: a century.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
