//! Medians over rounds, and ratios to Kafka.

use super::Side;
use crate::{
    plot::{Bar, svg},
    report::{Row, median},
};

/// What is compared, in the order of columns.
const MEASURES: [&str; 13] = [
    "MB/s",
    "cpu_s/GB",
    "rss_MB",
    "first_ms",
    "ready_ms",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "max_ms",
    "puts/GB",
    "gets/GB",
    "sent_B/B",
    "puts/round",
];

/// One row per scenario and side: medians, and what they are to Kafka's as `x` columns.
#[must_use]
pub fn medians(rows: &[Row]) -> Vec<Row> {
    let mut out = Vec::new();
    for scenario in scenarios(rows) {
        let named = |side: &'static str| {
            let of =
                move |row: &&Row| row.words("scenario") == scenario && row.words("side") == side;
            rows.iter().filter(of).collect::<Vec<_>>()
        };
        let kafka = named(Side::Kafka.name());
        for side in Side::ALL.map(Side::name).into_iter().chain(["disk"]) {
            let mine = named(side);
            if !mine.is_empty() {
                out.push(line(scenario, side, &mine, &kafka));
            }
        }
    }
    out
}

/// Names of scenarios in the order they come.
fn scenarios(rows: &[Row]) -> Vec<&str> {
    let mut names = Vec::new();
    for name in rows.iter().map(|row| row.words("scenario")) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn of(rows: &[&Row], measure: &str) -> Option<f64> {
    median(rows.iter().filter_map(|row| row.number(measure)).collect())
}

fn line(scenario: &str, side: &str, mine: &[&Row], kafka: &[&Row]) -> Row {
    let mut row = Row::new(scenario)
        .text("side", side)
        .count("rounds", mine.len() as u64);
    for measure in MEASURES {
        let Some(value) = of(mine, measure) else {
            continue;
        };
        row = row.measure(measure, value);
        let theirs =
            of(kafka, measure).filter(|theirs| side != Side::Kafka.name() && *theirs > 0.0);
        if let Some(theirs) = theirs {
            row = row.measure(&format!("x {measure}"), value / theirs);
        }
    }
    row
}

/// The medians as bars.
#[must_use]
pub fn picture(medians: &[Row]) -> String {
    let mut bars = Vec::new();
    for scenario in scenarios(medians) {
        for measure in MEASURES {
            let rows = medians
                .iter()
                .filter(|row| row.words("scenario") == scenario);
            bars.extend(rows.filter_map(|row| {
                Some(Bar {
                    group: format!("{scenario}, {measure}"),
                    label: row.words("side").to_owned(),
                    value: row.number(measure)?,
                })
            }));
        }
    }
    svg("Tidemill and Apache Kafka on this machine, medians", &bars)
}
