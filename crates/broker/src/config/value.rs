//! Values of settings: strict parsers that take blanks around a value, as Kafka's do.

use std::fmt;

/// The type of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigType {
    /// `true` or `false`, in any case of letters.
    Boolean,
    /// Any text.
    String,
    /// A 32 bit number.
    Int,
    /// A 16 bit number.
    Short,
    /// A 64 bit number.
    Long,
    /// A finite floating-point number.
    Double,
    /// Values separated by commas, none of them empty.
    List,
    /// The name of a Java class; without effect here.
    Class,
    /// A secret, never shown.
    Password,
}

impl ConfigType {
    /// The type in a DescribeConfigs response (v3 and later).
    #[must_use]
    pub const fn code(self) -> i8 {
        match self {
            Self::Boolean => 1,
            Self::String => 2,
            Self::Int => 3,
            Self::Short => 4,
            Self::Long => 5,
            Self::Double => 6,
            Self::List => 7,
            Self::Class => 8,
            Self::Password => 9,
        }
    }
}

/// What a value must be beyond its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Check {
    /// Anything of the type.
    Any,
    /// A number not below this.
    AtLeast(i64),
    /// A number within these bounds.
    Within(i64, i64),
    /// A number within these bounds, or -1.
    WithinOrDefault(i64, i64),
    /// A number that is -1 (no limit) or at least 1.
    PositiveOrUnlimited,
    /// A fraction from 0 to 1.
    Fraction,
    /// One of these words, case as given.
    OneOf(&'static [&'static str]),
    /// A list of these words.
    ListOf(&'static [&'static str]),
    /// `*`, or a list of `partition:broker`.
    Replicas,
    /// Text that is not empty.
    NotEmpty,
}

/// A parsed value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of [`ConfigType::Boolean`].
    Boolean(bool),
    /// Of any integer type.
    Number(i64),
    /// Of [`ConfigType::Double`].
    Double(f64),
    /// Of a text type.
    Text(String),
    /// Of [`ConfigType::List`].
    List(Vec<String>),
}

/// The canonical text, as it is stored and shown.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            // Always with a decimal point, and an exponent's letter as Java writes it.
            Self::Double(value) => f.write_str(&format!("{value:?}").replace('e', "E")),
            Self::Text(value) => value.fmt(f),
            Self::List(values) => f.write_str(&values.join(",")),
        }
    }
}

/// Parses `text` and checks it; the error says what it must be.
pub(super) fn parse(kind: ConfigType, check: Check, text: &str) -> Result<Value, String> {
    let text = text.trim();
    let value = match kind {
        ConfigType::Boolean => boolean(text)?,
        ConfigType::Int => integer(text, i64::from(i32::MIN), i64::from(i32::MAX), "32 bit")?,
        ConfigType::Short => integer(text, i64::from(i16::MIN), i64::from(i16::MAX), "16 bit")?,
        ConfigType::Long => integer(text, i64::MIN, i64::MAX, "64 bit")?,
        ConfigType::Double => double(text)?,
        ConfigType::List => list(text)?,
        ConfigType::String | ConfigType::Class | ConfigType::Password => {
            Value::Text(text.to_owned())
        }
    };
    verify(check, &value)?;
    Ok(value)
}

fn boolean(text: &str) -> Result<Value, String> {
    if text.eq_ignore_ascii_case("true") {
        Ok(Value::Boolean(true))
    } else if text.eq_ignore_ascii_case("false") {
        Ok(Value::Boolean(false))
    } else {
        Err("must be `true` or `false`".to_owned())
    }
}

fn integer(text: &str, min: i64, max: i64, size: &str) -> Result<Value, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (min..=max).contains(number));
    number
        .map(Value::Number)
        .ok_or_else(|| format!("must be a {size} whole number"))
}

fn double(text: &str) -> Result<Value, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number
        .map(Value::Double)
        .ok_or_else(|| "must be a number".to_owned())
}

fn list(text: &str) -> Result<Value, String> {
    if text.is_empty() {
        return Ok(Value::List(Vec::new()));
    }
    let values: Vec<_> = text
        .split(',')
        .map(|value| value.trim().to_owned())
        .collect();
    if values.iter().any(String::is_empty) {
        return Err("must not hold an empty value".to_owned());
    }
    Ok(Value::List(values))
}

fn verify(check: Check, value: &Value) -> Result<(), String> {
    let fits = match (check, value) {
        (Check::AtLeast(min), Value::Number(number)) => *number >= min,
        (Check::Within(min, max), Value::Number(number)) => (min..=max).contains(number),
        (Check::WithinOrDefault(min, max), Value::Number(number)) => {
            *number == -1 || (min..=max).contains(number)
        }
        (Check::PositiveOrUnlimited, Value::Number(number)) => *number == -1 || *number >= 1,
        (Check::Fraction, Value::Double(number)) => (0.0..=1.0).contains(number),
        (Check::OneOf(words), Value::Text(text)) => words.contains(&text.as_str()),
        (Check::ListOf(words), Value::List(values)) => {
            values.iter().all(|value| words.contains(&value.as_str()))
        }
        (Check::Replicas, Value::List(values)) => replicas(values),
        (Check::NotEmpty, Value::Text(text)) => !text.is_empty(),
        _ => true,
    };
    if fits { Ok(()) } else { Err(check.to_string()) }
}

fn replicas(values: &[String]) -> bool {
    let pair = |value: &String| {
        let parts = value.split_once(':');
        parts.is_some_and(|(partition, broker)| {
            partition.parse::<u32>().is_ok() && broker.parse::<u32>().is_ok()
        })
    };
    values == ["*"] || values.iter().all(pair)
}

/// What a value must be, for an error.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("may be anything"),
            Self::AtLeast(min) => write!(f, "must be at least {min}"),
            Self::Within(min, max) => write!(f, "must be between {min} and {max}"),
            Self::WithinOrDefault(min, max) => {
                write!(f, "must be between {min} and {max}, or -1")
            }
            Self::PositiveOrUnlimited => f.write_str("must be at least 1, or -1"),
            Self::Fraction => f.write_str("must be between 0 and 1"),
            Self::OneOf(words) => write!(f, "must be one of {}", words.join(", ")),
            Self::ListOf(words) => write!(f, "must be a list of {}", words.join(", ")),
            Self::Replicas => f.write_str("must be `*` or a list of partition:broker"),
            Self::NotEmpty => f.write_str("must not be empty"),
        }
    }
}
