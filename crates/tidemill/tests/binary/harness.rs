//! Starting, watching and ending the binary.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use tidemill_runtime::Runtime;
use tidemill_store::testing::{S3Options, S3Server};

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_tidemill");
/// Longest wait for something that should happen at once; machines that run tests are busy.
pub const SOON: Duration = Duration::from_secs(40);

/// Text that a process has written so far.
pub type Output = Arc<Mutex<String>>;

/// Collects what is written to `from`, line by line.
pub fn collect(from: impl Read + Send + 'static) -> Output {
    let output = Output::default();
    let into = output.clone();
    thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { return };
            let mut text = into.lock().expect("no panic while it is held");
            text.push_str(&line);
            text.push('\n');
        }
    });
    output
}

/// Waits until `condition` holds; the test fails with `what` if it does not.
pub fn eventually(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < within, "not within {within:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A command of the binary without settings from outside.
pub fn command(dir: &Path) -> Command {
    clean(Command::new(BINARY), dir)
}

/// `command` in `dir`, without settings from outside.
pub fn clean(mut command: Command, dir: &Path) -> Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["TIDEMILL_", "AWS_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            command.env_remove(name);
        }
    }
    command.current_dir(dir).stdin(Stdio::null());
    command
}

/// What a command has said and how it ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; none after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Runs a command to its end, with `input` as standard input.
pub fn run(mut command: Command, input: &str) -> Ended {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_owned();
    // A command that ends early does not read to the end.
    let writer = thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().expect("the binary ends");
    writer.join().expect("the writer does not panic");
    Ended {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A broker to be started.
pub struct Setup {
    dir: PathBuf,
    /// `--listen`.
    pub listen: String,
    /// Settings as `--set` takes them.
    pub set: Vec<String>,
    /// `--data`.
    pub data: Option<String>,
    /// Further environment.
    pub environment: BTreeMap<String, String>,
    /// A shell script that ends with `exec "$@"`, run as root of a mount namespace of its own.
    pub namespace: Option<String>,
}

impl Setup {
    /// A broker with `dir` as working directory and its data in `dir/tidemill-data`.
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            listen: "127.0.0.1:0".to_owned(),
            set: vec!["tidemill.admin.listen=127.0.0.1:0".to_owned()],
            data: None,
            environment: BTreeMap::new(),
            namespace: None,
        }
    }

    /// With one more setting.
    pub fn set(mut self, pair: &str) -> Self {
        self.set.push(pair.to_owned());
        self
    }

    /// The command.
    pub fn command(&self) -> Command {
        let mut command = match &self.namespace {
            None => Command::new(BINARY),
            Some(script) => {
                let mut command = Command::new("unshare");
                command.args(["-m", "sh", "-ec", script, "sh", BINARY]);
                command
            }
        };
        command.args(["serve", "--listen", &self.listen]);
        if let Some(data) = &self.data {
            command.args(["--data", data]);
        }
        for pair in &self.set {
            command.args(["--set", pair]);
        }
        let mut command = clean(command, &self.dir);
        command.envs(&self.environment);
        command
    }

    /// Starts it without waiting until it serves.
    pub fn spawn(&self) -> Broker {
        let mut command = self.command();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let out = collect(child.stdout.take().expect("piped"));
        let err = collect(child.stderr.take().expect("piped"));
        Broker {
            dir: self.dir.clone(),
            child,
            out,
            err,
            address: String::new(),
        }
    }

    /// Starts it and waits until it serves.
    pub fn start(&self) -> Broker {
        let mut broker = self.spawn();
        eventually("the broker says where to connect", SOON, || {
            if let Some(status) = broker.status() {
                panic!("the broker ended: {status}\n{}", broker.err());
            }
            broker.out().contains("metrics  ")
        });
        broker.address = broker.said("connect to");
        broker
    }
}

/// A running broker; killed when dropped.
pub struct Broker {
    /// Where its commands run.
    pub dir: PathBuf,
    child: Child,
    out: Output,
    err: Output,
    /// Where clients connect.
    pub address: String,
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What a panic breaks may be mended or go unseen; that it came is a fault all the same.
        let panicked = self.err().contains("panicked");
        assert!(!panicked || thread::panicking(), "{}", self.err());
    }
}

impl Broker {
    /// Standard output so far.
    pub fn out(&self) -> String {
        self.out.lock().expect("no panic while it is held").clone()
    }

    /// Standard error so far.
    pub fn err(&self) -> String {
        self.err.lock().expect("no panic while it is held").clone()
    }

    /// Waits until it has written a line to standard error that `is_it` is true of.
    pub fn tells(&self, is_it: impl Fn(&str) -> bool) {
        let began = Instant::now();
        while !self.err().lines().any(&is_it) {
            assert!(began.elapsed() < SOON, "not told:\n{}", self.err());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The word after `label` in what it announced.
    pub fn said(&self, label: &str) -> String {
        let out = self.out();
        let after = out
            .split_once(label)
            .map(|(_, after)| after)
            .unwrap_or_default();
        after
            .split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("our child can be asked")
    }

    /// Waits for its end.
    pub fn ended(&mut self, within: Duration) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.status() {
                // The last lines may still be on their way.
                thread::sleep(Duration::from_millis(50));
                return status.code();
            }
            assert!(
                began.elapsed() < within,
                "runs on after {within:?}\n{}",
                self.err()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.expect("there is a kill").success());
    }

    /// SIGTERM; the exit code.
    pub fn stop(mut self) -> Option<i32> {
        self.signal("TERM");
        self.ended(SOON)
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("our child can be killed");
        self.child.wait().expect("our child ends");
    }

    /// Resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = std::fs::read_to_string(path).expect("our child has a status");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let digits = line.and_then(|line| line.split_whitespace().nth(1));
        digits
            .and_then(|digits| digits.parse().ok())
            .expect("a number of KiB")
    }

    /// A command that talks to it.
    pub fn cli(&self, args: &[&str]) -> Command {
        let mut command = command(&self.dir);
        command.args(args).args(["--broker", &self.address]);
        command
    }

    /// Produces `records`, one a line, into `topic`; panics unless all are acknowledged.
    pub fn produce(&self, topic: &str, records: &[String]) {
        let input = records.join("\n") + "\n";
        let ended = run(self.cli(&["produce", topic]), &input);
        assert_eq!(ended.code, Some(0), "{ended:?}\n{}", self.err());
    }

    /// All records of `topic`, in order.
    pub fn consume(&self, topic: &str) -> Vec<String> {
        let ended = run(self.cli(&["consume", topic, "--exit"]), "");
        assert_eq!(ended.code, Some(0), "{ended:?}\n{}", self.err());
        ended.out.lines().map(str::to_owned).collect()
    }

    /// Status and body of a page of the admin endpoint.
    pub fn admin(&self, path: &str) -> (u16, String) {
        let url = self.said("metrics  ");
        let host = url
            .trim_start_matches("http://")
            .trim_end_matches("/metrics")
            .to_owned();
        http_get(&host, path)
    }
}

/// Status and body of what `host` answers to a GET.
pub fn http_get(host: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(host).expect("the endpoint answers");
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .expect("a request can be sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer comes");
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned());
    (status.expect("a status"), body.unwrap_or_default())
}

/// An address of this machine that nobody listens on.
pub fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").to_string()
}

/// `count` different records.
pub fn records(count: usize, what: &str) -> Vec<String> {
    (0..count).map(|n| format!("{what} {n}")).collect()
}

/// An S3 server in this process.
pub struct Bucket {
    /// Its threads.
    pub threads: tokio::runtime::Runtime,
    /// The server.
    pub server: S3Server,
}

impl Bucket {
    /// A server with the bucket `tides`, for the key id `test`.
    pub fn new() -> Self {
        Self::at(None)
    }

    /// The same at an address.
    pub fn at(listen: Option<SocketAddr>) -> Self {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("threads can be started");
        let options = S3Options {
            buckets: vec!["tides".to_owned()],
            key_ids: vec!["test".to_owned()],
            listen,
            ..S3Options::default()
        };
        let server = S3Server::start(options, Runtime::system());
        let server = threads.block_on(server).expect("a free port");
        Self { threads, server }
    }

    /// A broker on this bucket.
    pub fn setup(&self, dir: &Path) -> Setup {
        let mut setup = Setup::new(dir);
        setup.data = Some("s3://tides/here".to_owned());
        setup.environment = self.server.environment();
        setup
    }
}
