//! Apache Kafka from its jars: one node, broker and controller.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use tidemill_runtime::Runtime;

use super::Child;
use crate::error::BenchError;

/// Heap and collector as Kafka's own start script sets them, the heap at its default of 1 GiB.
const JVM: [&str; 7] = [
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
];

const LOGGING: &str = "rootLogger=error,c
appender.c.type=Console
appender.c.name=c
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%d %p %c{1} %m%n
";

/// The folder of its jars, which `ecosystem/suites/kafka-up.sh` fills.
pub fn libs(named: Option<PathBuf>) -> Result<PathBuf, BenchError> {
    let scratch = || match env::var_os("TIDEMILL_SCRATCH") {
        Some(scratch) => PathBuf::from(scratch),
        None => env::temp_dir().join("tidemill-suites"),
    };
    let libs = named.unwrap_or_else(|| scratch().join("kafka/libs"));
    if libs.is_dir() {
        return Ok(libs);
    }
    let what = format!(
        "no Kafka jars in `{}`; `ecosystem/suites/kafka-up.sh` fetches them when it first starts",
        libs.display()
    );
    Err(BenchError::Failed(what))
}

fn properties(dir: &Path, port: u16) -> String {
    let controller = port + 1;
    format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={}
num.network.threads=2
num.io.threads=2
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
",
        dir.join("data").display()
    )
}

/// Starts it on the data in `dir`, formatting that first if there is none.
pub fn start(libs: &Path, dir: &Path, port: u16, runtime: &Runtime) -> Result<Child, BenchError> {
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        let failed = BenchError::io(format!("`{}`", path.display()));
        fs::write(&path, text).map_err(failed).map(|()| path)
    };
    let settings = write("server.properties", &properties(dir, port))?;
    let logging = write("log4j2.properties", LOGGING)?;
    let java = || {
        let mut command = Command::new("java");
        command
            .arg(format!("-Dlog4j2.configurationFile={}", logging.display()))
            .arg("-cp")
            .arg(format!("{}/*", libs.display()))
            .current_dir(dir);
        command
    };
    if !dir.join("data").exists() {
        format(java(), &settings, runtime)?;
    }
    let mut command = java();
    command
        .args(JVM)
        .arg(format!("-Dkafka.logs.dir={}", dir.display()))
        .arg("kafka.Kafka")
        .arg(&settings);
    Child::start(&mut command, &dir.join("log"), port, None, runtime)
}

fn format(mut java: Command, settings: &Path, runtime: &Runtime) -> Result<(), BenchError> {
    java.args(["kafka.tools.StorageTool", "format", "--standalone"])
        .args(["--cluster-id", &cluster_id(runtime)])
        .arg("--config")
        .arg(settings);
    let output = java.output().map_err(BenchError::io("java"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(BenchError::Failed(format!("Kafka's format failed: {said}")))
}

/// 22 letters of URL-safe base64, as Kafka's `random-uuid` prints; the last holds two bits only.
fn cluster_id(runtime: &Runtime) -> String {
    const LETTERS: &[u8; 26] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let letter = |_| char::from(LETTERS[runtime.entropy.below(26) as usize]);
    let mut id: String = (0..21).map(letter).collect();
    id.push('A');
    id
}
