//! Results: rows, printed as a table for people and as JSON lines for programs.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use serde_json::{Map, Number, Value as Json};

/// A result.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Words.
    Text(String),
    /// A number that was counted.
    Count(u64),
    /// A number that was measured.
    Measure(f64),
}

impl Value {
    fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Measure(value) if value.abs() >= 100.0 => format!("{value:.0}"),
            Self::Measure(value) if value.abs() >= 10.0 => format!("{value:.1}"),
            Self::Measure(value) => format!("{value:.3}"),
        }
    }

    fn json(&self) -> Json {
        match self {
            Self::Text(text) => Json::from(text.as_str()),
            Self::Count(count) => Json::from(*count),
            // Not a number, as after a division by nothing, is null.
            Self::Measure(value) => Number::from_f64(*value).map_or(Json::Null, Json::Number),
        }
    }
}

/// One line of results: names with units, and values.
#[derive(Clone, Debug, Default)]
pub struct Row {
    fields: Vec<(String, Value)>,
}

impl Row {
    /// A row about `scenario`.
    #[must_use]
    pub fn new(scenario: &str) -> Self {
        Self::default().text("scenario", scenario)
    }

    /// Adds words.
    #[must_use]
    pub fn text(mut self, name: &str, value: impl Into<String>) -> Self {
        self.fields
            .push((name.to_owned(), Value::Text(value.into())));
        self
    }

    /// Adds a count.
    #[must_use]
    pub fn count(mut self, name: &str, value: u64) -> Self {
        self.fields.push((name.to_owned(), Value::Count(value)));
        self
    }

    /// Adds a measure.
    #[must_use]
    pub fn measure(mut self, name: &str, value: f64) -> Self {
        self.fields.push((name.to_owned(), Value::Measure(value)));
        self
    }

    /// Adds a measure if there is one.
    #[must_use]
    pub fn maybe(self, name: &str, value: Option<f64>) -> Self {
        match value {
            Some(value) => self.measure(name, value),
            None => self,
        }
    }

    /// The value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        let found = self.fields.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value)
    }

    /// The number of a name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.get(name)? {
            Value::Text(_) => None,
            Value::Count(count) => Some(*count as f64),
            Value::Measure(value) => Some(*value),
        }
    }

    /// The words of a name; empty if there are none.
    #[must_use]
    pub fn words(&self, name: &str) -> &str {
        match self.get(name) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// Its names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| name.as_str())
    }

    /// The row as one JSON object.
    #[must_use]
    pub fn json(&self) -> String {
        let fields = self.fields.iter();
        let map: Map<String, Json> = fields
            .map(|(name, value)| (name.clone(), value.json()))
            .collect();
        Json::Object(map).to_string()
    }
}

/// Prints rows as one table: a column for every name that any row has.
///
/// # Errors
/// Nobody reads it.
pub fn table(rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let mut names: Vec<&str> = Vec::new();
    for name in rows.iter().flat_map(Row::names) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let cell = |row: &Row, name: &str| row.get(name).map_or_else(String::new, Value::shown);
    let width = |name: &&str| {
        let cells = rows.iter().map(|row| cell(row, name).chars().count());
        cells.chain([name.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = names.iter().map(width).collect();
    let mut line = String::new();
    for (name, width) in names.iter().zip(&widths) {
        let _ = write!(line, "{name:>width$}  ");
    }
    writeln!(out, "{}", line.trim_end())?;
    for row in rows {
        line.clear();
        for (name, width) in names.iter().zip(&widths) {
            let _ = write!(line, "{:>width$}  ", cell(row, name));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    out.flush()
}

/// The median; `None` of nothing.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some((values[middle - 1] + upper) / 2.0)
}
