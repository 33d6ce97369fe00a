//! What a broker uses meanwhile: CPU and memory of its process, requests to its object store.

use std::{collections::BTreeMap, fs, time::Duration};

use tidemill_runtime::Runtime;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::error::BenchError;

/// Ticks per second in `/proc/PID/stat`; Linux shows 100 to user space on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;
/// Field numbers of `/proc/PID/stat` after the name, which may hold spaces (proc(5), minus 3).
const UTIME: usize = 11;
const STIME: usize = 12;
const START_TIME: usize = 19;
/// Field number in the first line of `/proc/stat`, after its name.
const STOLEN: usize = 7;
/// Longest `/metrics` page, in bytes: it grows with APIs and error codes, not with partitions.
const METRICS_BYTES_MAX: u64 = 16 << 20;
/// How long the page may take.
const METRICS_TIMEOUT: Duration = Duration::from_secs(10);

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    /// The broker's process.
    pub pid: Option<u32>,
    /// `HOST:PORT` of Tidemill's admin endpoint.
    pub metrics: Option<String>,
}

/// What was seen at one moment.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// CPU time used so far, user and system.
    pub cpu: Option<Duration>,
    /// Resident memory in bytes.
    pub rss_bytes: Option<u64>,
    /// CPU time that this machine wanted and its host gave to others, over all cores.
    pub stolen: Option<Duration>,
    /// Samples of `/metrics` by name and labels as written there.
    pub metrics: BTreeMap<String, f64>,
}

/// What was used between two samples.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// CPU time.
    pub cpu: Option<Duration>,
    /// Resident memory at the end, in bytes.
    pub rss_bytes: Option<u64>,
    /// CPU time that the host of this machine gave to others: what was measured says so much less.
    pub stolen: Option<Duration>,
    /// PUT requests.
    pub puts: Option<u64>,
    /// PUTs sent a second time because the first was slow.
    pub hedges: Option<u64>,
    /// LIST requests.
    pub lists: Option<u64>,
    /// GET and HEAD requests.
    pub gets: Option<u64>,
    /// Bytes of bodies sent to the store.
    pub sent_bytes: Option<u64>,
    /// Bytes of bodies received from it.
    pub received_bytes: Option<u64>,
}

impl Probe {
    /// Looks once.
    ///
    /// # Errors
    /// The process is gone, or the page cannot be had.
    pub async fn sample(&self, runtime: &Runtime) -> Result<Sample, BenchError> {
        let mut sample = Sample {
            stolen: stolen(),
            ..Sample::default()
        };
        if let Some(pid) = self.pid {
            sample.cpu = Some(cpu_time(pid)?);
            sample.rss_bytes = Some(rss_bytes(pid)?);
        }
        if let Some(address) = &self.metrics {
            let page = scrape(address, runtime).await?;
            sample.metrics = parse_metrics(&page);
        }
        Ok(sample)
    }
}

impl Sample {
    /// What was used from `self` until `later`.
    #[must_use]
    pub fn until(&self, later: &Self) -> Usage {
        let grown_by = |name: &str| {
            let (before, after) = (self.metrics.get(name)?, later.metrics.get(name)?);
            Some((after - before).max(0.0) as u64)
        };
        let grown = |name: &str| grown_by(&format!("tidemill_store_{name}_total"));
        let passed = |of: fn(&Self) -> Option<Duration>| {
            let both = of(self).zip(of(later));
            both.map(|(before, after)| after.saturating_sub(before))
        };
        Usage {
            cpu: passed(|sample| sample.cpu),
            rss_bytes: later.rss_bytes,
            stolen: passed(|sample| sample.stolen),
            puts: grown("put_requests"),
            hedges: grown_by(r#"tidemill_store_hedges_total{request="put",outcome="sent"}"#),
            lists: grown("list_requests"),
            gets: grown("get_requests"),
            sent_bytes: grown("sent_bytes"),
            received_bytes: grown("received_bytes"),
        }
    }
}

fn stat_field(pid: u32, field: usize) -> Result<f64, BenchError> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).map_err(BenchError::io(&path))?;
    let value = text
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().nth(field))
        .and_then(|value| value.parse().ok());
    value.ok_or_else(|| BenchError::Failed(format!("`{path}` is not as proc(5) says")))
}

/// CPU time of a process, user and system, its ended threads included.
///
/// # Errors
/// There is no such process.
pub fn cpu_time(pid: u32) -> Result<Duration, BenchError> {
    let ticks = stat_field(pid, UTIME)? + stat_field(pid, STIME)?;
    Ok(Duration::from_secs_f64(ticks / TICKS_PER_SECOND))
}

/// CPU time that this machine's host has given to others while it was wanted here, to a hundredth
/// of a second; `None` where nobody counts it.
#[must_use]
pub fn stolen() -> Option<Duration> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks: f64 = text
        .lines()
        .find_map(|line| line.strip_prefix("cpu "))?
        .split_whitespace()
        .nth(STOLEN)?
        .parse()
        .ok()?;
    Some(Duration::from_secs_f64(ticks / TICKS_PER_SECOND))
}

/// How long a process has run, to a hundredth of a second.
///
/// # Errors
/// There is no such process.
pub fn age(pid: u32) -> Result<Duration, BenchError> {
    let started = stat_field(pid, START_TIME)? / TICKS_PER_SECOND;
    let path = "/proc/uptime";
    let text = fs::read_to_string(path).map_err(BenchError::io(path))?;
    let uptime: Option<f64> = text
        .split_whitespace()
        .next()
        .and_then(|value| value.parse().ok());
    let uptime = uptime.ok_or_else(|| BenchError::Failed(format!("`{path}` is unreadable")))?;
    Ok(Duration::from_secs_f64((uptime - started).max(0.0)))
}

/// Resident memory of a process.
///
/// # Errors
/// There is no such process.
pub fn rss_bytes(pid: u32) -> Result<u64, BenchError> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).map_err(BenchError::io(&path))?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|value| value.parse::<u64>().ok());
    kib.map(|kib| kib << 10)
        .ok_or_else(|| BenchError::Failed(format!("`{path}` names no VmRSS")))
}

/// The process of this user that listens on a port of this machine; `None` if none is seen.
#[must_use]
pub fn listener_pid(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let inode = tables.iter().find_map(|table| {
        let text = fs::read_to_string(table).ok()?;
        text.lines().find_map(|line| listening_inode(line, port))
    })?;
    let socket = format!("socket:[{inode}]");
    let mut pids: Vec<u32> = fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids.into_iter().find(|pid| holds(*pid, &socket))
}

fn listening_inode(line: &str, port: u16) -> Option<String> {
    const LISTEN: &str = "0A";
    let fields: Vec<_> = line.split_whitespace().collect();
    let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    let listens = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()? == port;
    (listens && *state == LISTEN).then(|| (*inode).to_owned())
}

fn holds(pid: u32, socket: &str) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    descriptors
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .any(|link| link.to_str() == Some(socket))
}

async fn scrape(address: &str, runtime: &Runtime) -> Result<String, BenchError> {
    let what = format!("http://{address}/metrics");
    let reading = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET /metrics HTTP/1.0\r\nhost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream
            .take(METRICS_BYTES_MAX)
            .read_to_string(&mut answer)
            .await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = runtime.clock.timeout(METRICS_TIMEOUT, reading).await;
    let answer = answer
        .map_err(|_| BenchError::Failed(format!("`{what}` gave no answer")))?
        .map_err(BenchError::io(&what))?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains(" 200 ") => Ok(body.to_owned()),
        _ => Err(BenchError::Failed(format!("`{what}` is no metrics page"))),
    }
}

/// The samples of a page in Prometheus' text format.
#[must_use]
pub fn parse_metrics(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let (name, value) = line.trim().rsplit_once(' ')?;
            Some((name.trim().to_owned(), value.parse().ok()?))
        })
        .collect()
}
