//! Which of Kafka's settings without meaning here can be changed while the broker runs, as in Kafka
//! 4.4: what tools alter there they can alter here, it is kept, and shown as set.

use super::def::{ConfigDef, Role};

/// Which resource takes a change of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// One broker, named by its id.
    One,
    /// All brokers at once (the empty name), or one.
    Any,
}

impl ConfigDef {
    /// Which resource takes a change while the broker runs; none if only a start does.
    #[must_use]
    pub fn scope(&self) -> Option<Scope> {
        match self.role {
            Role::Live => Some(Scope::Any),
            Role::Inert if ANY.contains(&self.name) => Some(Scope::Any),
            Role::Inert if ONE.contains(&self.name) => Some(Scope::One),
            Role::Topic | Role::Fixed | Role::Inert | Role::Hidden => None,
        }
    }
}

/// Kafka takes a change of these for one broker and for all.
#[rustfmt::skip]
const ANY: &[&str] = &[
    "background.threads",
    "config.providers",
    "errors.deadletterqueue.auto.create.topics.enable",
    "errors.deadletterqueue.topic.name.prefix",
    "follower.fetch.last.tiered.offset.enable",
    "group.consumer.assignment.interval.ms",
    "group.coordinator.cached.buffer.max.bytes",
    "group.share.assignment.interval.ms",
    "group.streams.assignment.interval.ms",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "log.index.interval.bytes",
    "log.index.size.max.bytes",
    "log.local.retention.bytes",
    "log.local.retention.ms",
    "log.preallocate",
    "log.remote.copy.lag.bytes",
    "log.remote.copy.lag.ms",
    "log.roll.jitter.ms",
    "log.roll.ms",
    "log.segment.delete.delay.ms",
    "max.connection.creation.rate",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "metric.reporters",
    "min.insync.replicas",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.fetch.max.wait.ms",
    "remote.list.offsets.request.timeout.ms",
    "remote.log.index.file.cache.total.size.bytes",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.fetch.max.bytes.per.second",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
    "share.coordinator.cached.buffer.max.bytes",
    "transaction.partition.verification.enable",
    "unclean.leader.election.enable",
];

/// Kafka takes a change of these for one broker only. `sasl.jaas.config` is one too: a secret that
/// is of no use is not put into the bucket.
#[rustfmt::skip]
const ONE: &[&str] = &[
    "cordoned.log.dirs",
    "principal.builder.class",
    "sasl.enabled.mechanisms",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.mechanism.inter.broker.protocol",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.engine.factory.class",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
];
