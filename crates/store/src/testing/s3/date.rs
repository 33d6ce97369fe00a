//! Dates as S3 writes them.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

struct Civil {
    weekday: usize,
    year: i64,
    month: usize,
    day: i64,
    second_of_day: i64,
}

fn civil(unix_ms: i64) -> Civil {
    let seconds = unix_ms.div_euclid(1_000).max(0);
    let mut days = seconds / 86_400;
    let weekday = usize::try_from(days % 7).unwrap_or(0);
    let mut year = 1970;
    let is_leap = |year: i64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    while days >= 365 + i64::from(is_leap(year)) {
        days -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let lengths = [
        31,
        28 + i64::from(is_leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    Civil {
        weekday,
        year,
        month,
        day: days + 1,
        second_of_day: seconds % 86_400,
    }
}

fn clock(second_of_day: i64) -> String {
    let (hour, minute) = (second_of_day / 3_600, second_of_day / 60 % 60);
    format!("{hour:02}:{minute:02}:{:02}", second_of_day % 60)
}

/// As in `Last-Modified`.
pub(super) fn http(unix_ms: i64) -> String {
    let civil = civil(unix_ms);
    let (weekday, month) = (DAYS[civil.weekday], MONTHS[civil.month]);
    let time = clock(civil.second_of_day);
    format!(
        "{weekday}, {:02} {month} {} {time} GMT",
        civil.day, civil.year
    )
}

/// As in listings.
pub(super) fn iso(unix_ms: i64) -> String {
    let civil = civil(unix_ms);
    let (month, time) = (civil.month + 1, clock(civil.second_of_day));
    let millis = unix_ms.rem_euclid(1_000);
    format!(
        "{}-{month:02}-{:02}T{time}.{millis:03}Z",
        civil.year, civil.day
    )
}
