//! Listeners and what clients are told of them (K57, K93).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use super::error::ConfigError;
use super::settings::Settings;
use super::value::Value;

/// The only protocol that is served yet.
const PLAINTEXT: &str = "PLAINTEXT";
/// Kafka's other protocols.
const NOT_YET: &[&str] = &["SSL", "SASL_PLAINTEXT", "SASL_SSL"];

/// An address under a listener's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name, in capitals.
    pub name: String,
    /// Host name or address without brackets; empty is all addresses.
    pub host: String,
    /// Port; 0 takes a free one.
    pub port: u16,
}

impl Listener {
    /// Whether it stands for all addresses of the machine.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        let address: Option<IpAddr> = self.host.parse().ok();
        self.host.is_empty() || address.is_some_and(|address| address.is_unspecified())
    }

    /// Whether only this machine can reach it.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let address: Option<IpAddr> = self.host.parse().ok();
        is_localhost(&self.host) || address.is_some_and(|address| address.is_loopback())
    }

    /// What to bind: `host:port`, an IPv6 address in brackets.
    #[must_use]
    pub fn bind_address(&self) -> String {
        match self.host.as_str() {
            "" => format!("0.0.0.0:{}", self.port),
            host if host.parse::<Ipv6Addr>().is_ok() => format!("[{host}]:{}", self.port),
            host => format!("{host}:{}", self.port),
        }
    }

    /// `NAME://host:port`, or `host:port` for PLAINTEXT.
    fn parse(text: &str) -> Result<Self, String> {
        let (name, address) = text.split_once("://").unwrap_or((PLAINTEXT, text));
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '.';
        if name.is_empty() || !name.chars().all(word) {
            return Err(format!("`{text}` has no proper listener name"));
        }
        let (host, port) = address
            .rsplit_once(':')
            .ok_or_else(|| format!("`{text}` has no port"))?;
        let port = port
            .parse()
            .map_err(|_| format!("`{text}` has no valid port"))?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest
                .strip_suffix(']')
                .filter(|host| host.parse::<Ipv6Addr>().is_ok())
                .ok_or_else(|| format!("`{text}` has no valid IPv6 address"))?,
            None if host.contains([':', '/', ' ', '@']) => {
                return Err(format!("`{text}` has no valid host"));
            }
            None => host,
        };
        Ok(Self {
            name: name.to_ascii_uppercase(),
            host: host.to_owned(),
            port,
        })
    }
}

fn is_localhost(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
}

/// The listeners, and for each what clients are told, in the same order.
pub(super) fn resolve(settings: &Settings) -> Result<Vec<(Listener, Listener)>, ConfigError> {
    let listeners = read(settings, "listeners")?;
    if listeners.is_empty() {
        return Err(settings.error("listeners", "must name a listener".to_owned()));
    }
    let protocols = protocols(settings)?;
    for listener in &listeners {
        served(&listener.name, &protocols).map_err(|reason| settings.error("listeners", reason))?;
    }
    unique(&listeners).map_err(|reason| settings.error("listeners", reason))?;
    let advertised = read(settings, "advertised.listeners")?;
    let refuse = |reason: String| settings.error("advertised.listeners", reason);
    for told in &advertised {
        if !listeners.iter().any(|listener| listener.name == told.name) {
            return Err(refuse(format!("there is no listener `{}`", told.name)));
        }
        if told.is_wildcard() {
            return Err(refuse(format!("clients cannot connect to `{}`", told.host)));
        }
        if told.port == 0 {
            return Err(refuse("clients cannot connect to port 0".to_owned()));
        }
    }
    unique_names(&advertised).map_err(refuse)?;
    let told = |listener: &Listener| {
        let given = advertised.iter().find(|told| told.name == listener.name);
        given.cloned().map_or_else(|| implied(listener), Ok)
    };
    let pairs: Result<Vec<_>, String> = listeners
        .iter()
        .map(|listener| Ok((listener.clone(), told(listener)?)))
        .collect();
    pairs.map_err(|reason| settings.error("listeners", reason))
}

/// What clients are told if nothing is set.
fn implied(listener: &Listener) -> Result<Listener, String> {
    if listener.is_wildcard() {
        let name = &listener.name;
        return Err(format!(
            "`{name}` listens on all addresses, so `advertised.listeners` must say which one \
             clients connect to, for example `{name}://broker.example.org:{}`",
            listener.port
        ));
    }
    let mut told = listener.clone();
    if is_localhost(&told.host) {
        // Clients try ::1 first for the name, where nobody listens.
        told.host = "127.0.0.1".to_owned();
    }
    Ok(told)
}

fn read(settings: &Settings, name: &str) -> Result<Vec<Listener>, ConfigError> {
    let Some(Value::List(texts)) = settings.value(name) else {
        return Ok(Vec::new());
    };
    let listeners: Result<_, _> = texts.iter().map(|text| Listener::parse(text)).collect();
    listeners.map_err(|reason| settings.error(name, reason))
}

/// Protocols by listener name.
fn protocols(settings: &Settings) -> Result<BTreeMap<String, String>, ConfigError> {
    const NAME: &str = "listener.security.protocol.map";
    let text = settings.text(NAME).unwrap_or_default();
    let pairs = text
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty());
    let mut protocols = BTreeMap::new();
    for pair in pairs {
        let Some((name, protocol)) = pair.split_once(':') else {
            return Err(settings.error(NAME, format!("`{pair}` is not NAME:PROTOCOL")));
        };
        let protocol = protocol.trim().to_ascii_uppercase();
        if protocol != PLAINTEXT && !NOT_YET.contains(&protocol.as_str()) {
            return Err(settings.error(NAME, format!("unknown protocol `{protocol}`")));
        }
        protocols.insert(name.trim().to_ascii_uppercase(), protocol);
    }
    Ok(protocols)
}

fn served(name: &str, protocols: &BTreeMap<String, String>) -> Result<(), String> {
    match protocols.get(name).map(String::as_str) {
        Some(PLAINTEXT) => Ok(()),
        Some(protocol) => Err(format!(
            "listener `{name}`: {protocol} is not served yet, only PLAINTEXT is"
        )),
        None => Err(format!(
            "listener `{name}` has no protocol in `listener.security.protocol.map`"
        )),
    }
}

fn unique(listeners: &[Listener]) -> Result<(), String> {
    unique_names(listeners)?;
    for (index, listener) in listeners.iter().enumerate() {
        let same = |other: &Listener| other.port == listener.port && other.host == listener.host;
        if listener.port != 0 && listeners[..index].iter().any(same) {
            return Err(format!("two listeners on `{}`", listener.bind_address()));
        }
    }
    Ok(())
}

fn unique_names(listeners: &[Listener]) -> Result<(), String> {
    for (index, listener) in listeners.iter().enumerate() {
        if listeners[..index]
            .iter()
            .any(|other| other.name == listener.name)
        {
            return Err(format!("two addresses for listener `{}`", listener.name));
        }
    }
    Ok(())
}
