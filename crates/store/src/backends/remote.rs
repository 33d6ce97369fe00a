//! S3 and what speaks like it, Google Cloud Storage and Azure Blob Storage, over `object_store`.
//!
//! One call is one HTTP request (a listing of more than a page, and a copy on S3, apart); nothing
//! is retried here. S3 knows no conditional copy of its own, so a copy there is a GET and a PUT.

mod answer;
mod http;
mod settings;

use std::{fmt, ops::Range, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use object_store::{
    GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutPayload,
    list::{PaginatedListOptions, PaginatedListStore},
    path::Path,
};

use self::http::noted;
use crate::{
    backend::{Backend, ObjectMeta, Payload, PutAnswer},
    error::{StoreError, StoreErrorKind},
    key,
};

pub(crate) use settings::open;
#[cfg(feature = "testing")]
pub(crate) use settings::open_routed;

/// Keys in one request of a listing; the most that S3 gives.
const PAGE: usize = 1_000;

/// Both traits of a bucket.
trait Bucket: ObjectStore + PaginatedListStore {}

impl<T: ObjectStore + PaginatedListStore> Bucket for T {}

/// A bucket, or a part of it below a prefix.
#[derive(Clone)]
pub struct Remote {
    bucket: Arc<dyn Bucket>,
    /// Below which all keys lie: empty, or with a slash at its end.
    root: String,
    name: String,
    /// The store itself copies unless the target exists.
    copies: bool,
    /// Listings come in the order of keys, and may start after one.
    is_ordered: bool,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Remote").field(&self.name).finish()
    }
}

impl Remote {
    fn path(&self, operation: &'static str, key: &str) -> Result<Path, StoreError> {
        Path::parse(format!("{}{key}", self.root)).map_err(|error| {
            StoreError::new(StoreErrorKind::Invalid, operation, key, error.to_string())
        })
    }

    fn meta(&self, found: &object_store::ObjectMeta) -> ObjectMeta {
        let key = found.location.as_ref();
        ObjectMeta {
            key: key.strip_prefix(&self.root).unwrap_or(key).to_owned(),
            size: found.size,
            modified_ms: found.last_modified.timestamp_millis(),
        }
    }

    async fn read(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes, StoreError> {
        let path = self.path("get", key)?;
        let options = GetOptions {
            range: range.clone().map(GetRange::Bounded),
            ..GetOptions::default()
        };
        let request = async {
            let found = self.bucket.get_opts(&path, options).await?;
            let size = found.meta.size;
            Ok((size, found.bytes().await?))
        };
        let (result, seen) = noted(request).await;
        let (size, bytes) = match result {
            Ok(found) => found,
            Err(error) => {
                let error = answer::read_error("get", key, error, &seen);
                if let Some(range) = range.filter(|_| matches!(seen.status, Some(200..=299))) {
                    // Some stores (azurite) answer a range beyond the object with what it has.
                    key::check_range(key, &range, self.head(key).await?.size)?;
                }
                return Err(error);
            }
        };
        let range = range.unwrap_or(0..size);
        key::check_range(key, &range, size)?;
        key::check_len(key, &range, bytes.len())?;
        Ok(bytes)
    }
}

#[async_trait]
impl Backend for Remote {
    async fn put_if_absent(&self, key: &str, body: Payload) -> Result<PutAnswer, StoreError> {
        key::check("put", key)?;
        let path = self.path("put", key)?;
        let payload: PutPayload = body.slices().iter().cloned().collect();
        let request = self.bucket.put_opts(&path, payload, PutMode::Create.into());
        let (result, seen) = noted(request).await;
        match result {
            Ok(_) => Ok(PutAnswer::Created),
            Err(error) => answer::write_answer("put", key, error, &seen),
        }
    }

    async fn get(&self, key: &str) -> Result<Bytes, StoreError> {
        self.read(key, None).await
    }

    async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        if range.start >= range.end {
            // HTTP knows no empty range.
            let size = self.head(key).await?.size;
            key::check_range(key, &range, size)?;
            return Ok(Bytes::new());
        }
        self.read(key, Some(range)).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta, StoreError> {
        let path = self.path("head", key)?;
        let (result, seen) = noted(self.bucket.head(&path)).await;
        let found = result.map_err(|error| answer::read_error("head", key, error, &seen))?;
        Ok(self.meta(&found))
    }

    async fn delete(&self, key: &str) -> Result<(), StoreError> {
        key::check("delete", key)?;
        let path = self.path("delete", key)?;
        let (result, seen) = noted(self.bucket.delete(&path)).await;
        let Err(error) = result else { return Ok(()) };
        let error = answer::read_error("delete", key, error, &seen);
        if error.kind == StoreErrorKind::NotFound {
            Ok(())
        } else {
            Err(error)
        }
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>, StoreError> {
        let full = format!("{}{prefix}", self.root);
        let full = Some(full.as_str()).filter(|full| !full.is_empty());
        let offset = start_after.filter(|_| self.is_ordered);
        let mut options = PaginatedListOptions {
            offset: offset.map(|after| format!("{}{after}", self.root)),
            ..PaginatedListOptions::default()
        };
        let mut all = Vec::new();
        // Without order, the first ones are known once all are.
        while all.len() < limit || !self.is_ordered {
            let wanted = limit.saturating_sub(all.len());
            options.max_keys = Some(if self.is_ordered {
                wanted.min(PAGE)
            } else {
                PAGE
            });
            let request = self.bucket.list_paginated(full, clone(&options));
            let (result, seen) = noted(request).await;
            let page = result.map_err(|error| answer::read_error("list", prefix, error, &seen))?;
            let found = page.result.objects.iter().map(|found| self.meta(found));
            // Azure's emulator knows no offset and begins at the front.
            all.extend(
                found.filter(|meta| start_after.is_none_or(|after| meta.key.as_str() > after)),
            );
            match page.page_token {
                Some(token) => options.page_token = Some(token),
                None => break,
            }
        }
        if !self.is_ordered {
            all.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        }
        all.truncate(limit);
        Ok(all)
    }

    async fn copy_if_absent(&self, from: &str, to: &str) -> Result<PutAnswer, StoreError> {
        key::check("copy", to)?;
        if !self.copies {
            let bytes = self.get(from).await?;
            return self.put_if_absent(to, bytes.into()).await;
        }
        let (source, target) = (self.path("copy", from)?, self.path("copy", to)?);
        let (result, seen) = noted(self.bucket.copy_if_not_exists(&source, &target)).await;
        match result {
            Ok(()) => Ok(PutAnswer::Created),
            Err(error) if answer::is_missing(&error, &seen) => {
                Err(answer::read_error("copy", from, error, &seen))
            }
            Err(error) => answer::write_answer("copy", to, error, &seen),
        }
    }

    fn is_local(&self) -> bool {
        false
    }

    fn lists_at_once(&self) -> bool {
        self.is_ordered
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}

fn clone(options: &PaginatedListOptions) -> PaginatedListOptions {
    // A listing goes on from its token; Azure refuses both.
    let offset = options
        .offset
        .clone()
        .filter(|_| options.page_token.is_none());
    PaginatedListOptions {
        offset,
        ..options.clone()
    }
}
