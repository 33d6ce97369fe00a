//! Ordered listings of a directory tree that looks like a flat set of keys.

use std::{collections::BTreeMap, io, path::Path};

use super::{fs::Fs, layout};

enum Item {
    File,
    /// A folder; its keys start with its own and a slash.
    Folder,
    /// A shard directory's name; its keys look as if they lay in the folder above.
    Shard(String),
}

/// A listing under way.
pub(crate) struct Listing<'a> {
    fs: &'a dyn Fs,
    root: &'a Path,
    prefix: &'a str,
    after: Option<&'a str>,
    limit: usize,
    found: Vec<String>,
}

/// Keys below `prefix` that are greater than `after`, in ascending order, at most `limit`.
pub(crate) fn keys(
    fs: &dyn Fs,
    root: &Path,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> io::Result<Vec<String>> {
    let mut listing = Listing {
        fs,
        root,
        prefix,
        after,
        limit,
        found: Vec::new(),
    };
    let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
    listing.folder(folder)?;
    Ok(listing.found)
}

fn missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

impl Listing<'_> {
    /// Lists `folder` (no slash at its end; empty for the root) and all below.
    fn folder(&mut self, folder: &str) -> io::Result<()> {
        let path = self.root.join(folder);
        let entries = match self.fs.read_dir(&path) {
            Err(error) if missing(&error) => return Ok(()),
            other => other?,
        };
        let base = if folder.is_empty() {
            String::new()
        } else {
            format!("{folder}/")
        };
        // Sorted by the first key each may hold: a shard by its first number.
        let mut items = BTreeMap::new();
        for entry in entries {
            let hidden = layout::is_hidden(&entry.name)
                || (folder.is_empty() && layout::is_reserved_top(&entry.name));
            if hidden {
                continue;
            }
            if !entry.is_dir {
                items.insert(format!("{base}{}", entry.name), Item::File);
                continue;
            }
            match layout::shard_start(&entry.name) {
                Some(start) => {
                    let last = format!("{base}{:020}", start.saturating_add(layout::SHARD - 1));
                    if self.after.is_none_or(|after| last.as_str() > after) {
                        items.insert(format!("{base}{start:020}"), Item::Shard(entry.name));
                    }
                }
                None => {
                    items.insert(format!("{base}{}/", entry.name), Item::Folder);
                }
            }
        }
        while let Some((key, item)) = items.pop_first() {
            if self.found.len() >= self.limit {
                return Ok(());
            }
            match item {
                Item::File => self.file(key),
                Item::Folder => self.subfolder(&key)?,
                Item::Shard(name) => {
                    let entries = match self.fs.read_dir(&path.join(&name)) {
                        Err(error) if missing(&error) => continue,
                        other => other?,
                    };
                    let files = entries
                        .into_iter()
                        .filter(|entry| !entry.is_dir && !layout::is_hidden(&entry.name));
                    items.extend(files.map(|file| (format!("{base}{}", file.name), Item::File)));
                }
            }
        }
        Ok(())
    }

    fn subfolder(&mut self, key: &str) -> io::Result<()> {
        if !key.starts_with(self.prefix) {
            return Ok(());
        }
        // Everything in it lies before `after`.
        let over = self
            .after
            .is_some_and(|after| after >= key && !after.starts_with(key));
        if over {
            return Ok(());
        }
        self.folder(key.strip_suffix('/').unwrap_or(key))
    }

    fn file(&mut self, key: String) {
        let wanted =
            key.starts_with(self.prefix) && self.after.is_none_or(|after| key.as_str() > after);
        if wanted {
            self.found.push(key);
        }
    }
}
