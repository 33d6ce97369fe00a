//! Tables, JSON lines, medians, metrics pages, processes.

use std::time::Duration;

use tidemill_bench::{
    plot::{Bar, svg},
    probe::{self, Probe, Sample, parse_metrics},
    report::{Row, median, table},
};

#[test]
fn a_table_has_a_column_for_every_name() {
    let rows = [
        Row::new("produce")
            .measure("MB/s", 431.07)
            .count("puts", 12),
        Row::new("consume")
            .measure("MB/s", 7.5)
            .measure("cpu_s/GB", 0.651),
    ];
    let mut out = Vec::new();
    table(&rows, &mut out).expect("memory");
    let text = String::from_utf8(out).expect("text");
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0], ["scenario", "MB/s", "puts", "cpu_s/GB"]);
    assert_eq!(lines[1], ["produce", "431", "12"]);
    assert_eq!(lines[2], ["consume", "7.500", "0.651"]);
}

#[test]
fn a_row_is_one_line_of_json() {
    let row = Row::new("a \"b\"\n")
        .count("n", 3)
        .measure("x", f64::NAN)
        .measure("y", 0.5);
    let json: serde_json::Value = serde_json::from_str(&row.json()).expect("JSON");
    assert!(!row.json().contains('\n'));
    assert_eq!(json["scenario"], "a \"b\"\n");
    assert_eq!(json["n"], 3);
    assert!(json["x"].is_null());
    assert_eq!(json["y"], 0.5);
}

#[test]
fn medians() {
    assert_eq!(median(vec![]), None);
    assert_eq!(median(vec![3.0]), Some(3.0));
    assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(vec![4.0, 1.0, 2.0, f64::NAN, 3.0]), Some(2.5));
}

#[test]
fn requests_are_counted_between_two_pages() {
    let page = |puts: u32, bytes: u32| {
        let text = format!(
            "# HELP tidemill_store_put_requests_total PUT requests, retries included.\n\
             # TYPE tidemill_store_put_requests_total counter\n\
             tidemill_store_put_requests_total {puts}\n\
             tidemill_store_sent_bytes_total {bytes}\n\
             tidemill_store_errors_total{{kind=\"full\"}} 2\n"
        );
        Sample {
            metrics: parse_metrics(&text),
            ..Sample::default()
        }
    };
    let before = page(10, 1_000);
    assert_eq!(
        before.metrics["tidemill_store_errors_total{kind=\"full\"}"],
        2.0
    );
    let usage = before.until(&page(14, 51_000));
    assert_eq!((usage.puts, usage.sent_bytes), (Some(4), Some(50_000)));
    // Not on the page, not known; another broker than Tidemill has no page at all.
    assert_eq!((usage.gets, usage.cpu), (None, None));
    assert_eq!(Sample::default().until(&Sample::default()).puts, None);
}

#[tokio::test]
async fn a_process_is_found_by_its_port() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("loopback");
    let port = listener.local_addr().expect("bound").port();
    let pid = std::process::id();
    assert_eq!(probe::listener_pid(port), Some(pid));
    let probe = Probe {
        pid: Some(pid),
        metrics: None,
    };
    let runtime = tidemill_runtime::Runtime::system();
    let sample = probe.sample(&runtime).await.expect("this process");
    assert!(sample.rss_bytes.expect("known") > 100_000);
    assert!(sample.cpu.expect("known") < Duration::from_secs(3_600));
    assert!(probe::age(pid).expect("known") < Duration::from_secs(3_600));
    assert!(probe::cpu_time(u32::MAX).is_err());
}

#[test]
fn a_picture_has_a_bar_for_every_value() {
    let bar = |group: &str, label: &str, value| Bar {
        group: group.to_owned(),
        label: label.to_owned(),
        value,
    };
    let bars = [
        bar("produce, MB/s", "kafka", 430.0),
        bar("produce, MB/s", "tide<mill", 860.0),
        bar("idle, MB", "kafka", 0.0),
    ];
    let picture = svg("a & b", &bars);
    assert_eq!(picture.matches("fill=\"#").count(), 3);
    assert!(picture.contains("a &amp; b") && picture.contains("tide&lt;mill"));
    assert!(picture.contains("width=\"210\"") && picture.contains("width=\"420\""));
}
