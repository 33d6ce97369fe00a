//! Bars, in SVG: no other program is needed.

use std::fmt::Write;

/// A bar: what, which side, how much.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The group of bars it stands in, such as `produce, MB/s`.
    pub group: String,
    /// Which side.
    pub label: String,
    /// How long it is; bars of one group share a scale.
    pub value: f64,
}

const ROW: usize = 22;
const LABELS: usize = 170;
const LONGEST: f64 = 420.0;
const WIDTH: usize = 720;
const COLOURS: [&str; 4] = ["#4269d0", "#efb118", "#3ca951", "#a463f2"];

/// A picture of bars, grouped in the order they come.
#[must_use]
pub fn svg(title: &str, bars: &[Bar]) -> String {
    let mut body = String::new();
    let mut y = 2 * ROW;
    let _ = writeln!(
        body,
        "<text x=\"8\" y=\"{ROW}\" font-weight=\"bold\">{}</text>",
        escaped(title)
    );
    for (index, bar) in bars.iter().enumerate() {
        let first = index == 0 || bars[index - 1].group != bar.group;
        if first {
            y += ROW / 2;
            let group = escaped(&bar.group);
            let _ = writeln!(
                body,
                "<text x=\"8\" y=\"{y}\" font-style=\"italic\">{group}</text>"
            );
            y += 6;
        }
        let group = || bars.iter().filter(|other| other.group == bar.group);
        let place = group()
            .position(|other| other.label == bar.label)
            .unwrap_or(0);
        let longest = group()
            .map(|other| other.value)
            .fold(f64::MIN_POSITIVE, f64::max);
        let length = (bar.value.max(0.0) / longest * LONGEST).max(1.0);
        let colour = COLOURS[place % COLOURS.len()];
        let (label, value) = (escaped(&bar.label), bar.value);
        let text = y + ROW - 7;
        let end = LABELS as f64 + length + 6.0;
        let height = ROW - 4;
        let _ = writeln!(
            body,
            "<text x=\"16\" y=\"{text}\">{label}</text>\
             <rect x=\"{LABELS}\" y=\"{y}\" width=\"{length:.0}\" height=\"{height}\" \
             fill=\"{colour}\"/><text x=\"{end:.0}\" y=\"{text}\">{value:.2}</text>"
        );
        y += ROW;
        let last = bars
            .get(index + 1)
            .is_none_or(|next| next.group != bar.group);
        if last {
            y += ROW;
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
