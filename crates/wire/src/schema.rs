//! The schema that messages are declared in.
//!
//! ```text
//! schema! {
//!     HeartbeatRequest, versions 0..=4, flexible 4 {     // the message itself comes first
//!         group_id: Str [0..];                 // name, type, versions that have it
//!         #[ignorable] instance: Option<Str> [3..], null [4..];  // dropped where it is unknown
//!         lag: i64 [4..], tag 0, default -1;   // tagged fields last, in tag order
//!     }
//!     SomeNestedStruct { .. }
//! }
//! ```
//!
//! A field that the version lacks takes its default when read, and must have it when written
//! unless it is ignorable, as in Kafka's generated classes. The one deviation: an `Option`
//! without a default is `None`, where Java has an empty string or array.

/// The first flexible version of a message that has none.
pub(crate) const NEVER: i16 = i16::MAX;

macro_rules! schema {
    (
        $name:ident, versions $versions:expr, flexible $flexible:tt { $($fields:tt)* }
        $($nested:ident { $($nested_fields:tt)* })*
    ) => {
        $crate::schema::structure! { $name { $($fields)* } }
        $($crate::schema::structure! { $nested { $($nested_fields)* } })*

        impl $crate::codec::Message for $name {
            const NAME: &'static str = stringify!($name);
            const VERSIONS: std::ops::RangeInclusive<i16> = $versions;
            const FLEXIBLE: i16 = $flexible;

            fn decode(
                decoder: &mut $crate::codec::Decoder,
                version: i16,
            ) -> Result<Self, $crate::codec::DecodeError> {
                if !Self::VERSIONS.contains(&version) {
                    return Err($crate::codec::DecodeError::new(
                        $crate::codec::DecodeErrorKind::UnsupportedVersion(version),
                    ).at(stringify!($name)));
                }
                decoder.set_flexible(version >= Self::FLEXIBLE);
                Ok(<Self as $crate::codec::Wire>::read(decoder, version)?)
            }

            fn encode(
                &self,
                encoder: &mut $crate::codec::Encoder,
                version: i16,
            ) -> Result<(), $crate::codec::EncodeError> {
                if !Self::VERSIONS.contains(&version) {
                    return Err($crate::codec::EncodeError::new(
                        $crate::codec::EncodeErrorKind::UnsupportedVersion(version),
                    ).at(stringify!($name)));
                }
                encoder.set_flexible(version >= Self::FLEXIBLE);
                Ok(<Self as $crate::codec::Wire>::write(self, encoder, version)?)
            }
        }
    };
}

macro_rules! structure {
    ($name:ident { $(
        $(#[$ignorable:ident])? $field:ident: $type:ty [$versions:pat_param]
        $(, null [$null:pat_param])? $(, tag $tag:literal)? $(, default $default:expr)? ;
    )* }) => {
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name { $(pub $field: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::schema::default!($type $(, $default)?),)* }
            }
        }

        impl $crate::codec::Wire for $name {
            #[allow(unused_variables, unused_mut)]
            fn min(version: i16, flexible: bool) -> usize {
                let mut min = usize::from(flexible);
                $(min += $crate::schema::min!(version, flexible, $type, $versions, [$($tag)?]);)*
                min
            }

            #[allow(unused_variables, unused_mut)]
            fn read(
                d: &mut $crate::codec::Decoder,
                version: i16,
            ) -> $crate::codec::Read<Self> {
                $(let mut $field = $crate::schema::read!(
                    d, version, $name, $field: $type, $versions,
                    [$($null)?] [$($tag)?] [$($default)?]
                );)*
                if d.flexible() {
                    $crate::schema::tags!(d, [$($($tag)?)*] {
                        for _ in 0..d.uvarint()? {
                            let (tag, outer) = d.enter_tag()?;
                            match tag {
                                $($($tag if matches!(version, $versions) => {
                                    let path = $crate::schema::field!($name, $field);
                                    $field = $crate::codec::read_field(d, version, path)?;
                                })?)*
                                _ => d.skip_tag(),
                            }
                            d.leave_tag(tag, outer)?;
                        }
                    });
                }
                Ok(Self { $($field,)* })
            }

            #[allow(unused_variables, unused_mut)]
            fn write(
                &self,
                e: &mut $crate::codec::Encoder,
                version: i16,
            ) -> $crate::codec::Written {
                let mut tags = 0u32;
                $($crate::schema::write!(
                    self, e, version, tags, $name, $field: $type, $versions,
                    [$($ignorable)?] [$($null)?] [$($tag)?] [$($default)?]
                );)*
                if e.flexible() {
                    e.uvarint(tags);
                    $($(if $field {
                        let start = e.begin_tag($tag);
                        let path = $crate::schema::field!($name, $field);
                        $crate::codec::write_field(&self.$field, e, version, path)?;
                        e.end_tag(start)?;
                    })?)*
                }
                Ok(())
            }
        }

        $crate::schema::sample! { $name { $(
            $field: $type [$versions] [$($null)?] [$($default)?];
        )* } }

        impl $crate::codec::Nullable for $name {
            fn read_nullable(
                d: &mut $crate::codec::Decoder,
                version: i16,
            ) -> $crate::codec::Read<Option<Self>> {
                // Kafka takes any negative marker for null.
                if d.i8()? < 0 {
                    return Ok(None);
                }
                <Self as $crate::codec::Wire>::read(d, version).map(Some)
            }

            fn write_null(e: &mut $crate::codec::Encoder) {
                e.i8(-1);
            }

            fn write_present(e: &mut $crate::codec::Encoder) {
                e.i8(1);
            }

            fn null_size(_: bool) -> usize {
                1
            }
        }
    };
}

#[cfg(feature = "sample")]
macro_rules! sample {
    ($name:ident { $(
        $field:ident: $type:ty [$versions:pat_param] [$($null:pat_param)?] [$($default:expr)?];
    )* }) => {
        impl $crate::sample::Sample for $name {
            #[allow(unused_variables)]
            fn sample(g: &mut $crate::sample::Gen, version: i16) -> Self {
                $(
                    let mut $field = $crate::schema::default!($type $(, $default)?);
                    if matches!(version, $versions) && !g.one_in(8) {
                        $field = <$type as $crate::sample::Sample>::sample(g, version);
                    }
                    $(while matches!(version, $versions)
                        && !matches!(version, $null)
                        && $crate::codec::Wire::is_null(&$field)
                    {
                        $field = <$type as $crate::sample::Sample>::sample(g, version);
                    })?
                )*
                Self { $($field,)* }
            }
        }
    };
}

#[cfg(not(feature = "sample"))]
macro_rules! sample {
    ($($any:tt)*) => {};
}

macro_rules! default {
    ($type:ty) => {
        <$type>::default()
    };
    ($type:ty, $default:expr) => {
        $default
    };
}

macro_rules! field {
    ($name:ident, $field:ident) => {
        concat!(stringify!($name), ".", stringify!($field))
    };
}

/// Reads a section of tagged fields: passed over as a whole if none is known.
macro_rules! tags {
    ($d:ident, [] $read:tt) => {
        $d.skip_tags()?
    };
    ($d:ident, [$($tag:literal)+] $read:tt) => {
        $read
    };
}

/// The fewest bytes that one field takes.
macro_rules! min {
    ($version:ident, $flexible:ident, $type:ty, $versions:pat_param, []) => {
        if matches!($version, $versions) {
            <$type as $crate::codec::Wire>::min($version, $flexible)
        } else {
            0
        }
    };
    ($version:ident, $flexible:ident, $type:ty, $versions:pat_param, [$tag:literal]) => {
        0
    };
}

/// One field's value as its version has it; a tagged one's default.
macro_rules! read {
    (
        $d:ident, $version:ident, $name:ident, $field:ident: $type:ty, $versions:pat_param,
        [$($null:pat_param)?] [] [$($default:expr)?]
    ) => {
        if matches!($version, $versions) {
            let value: $type =
                $crate::codec::read_field($d, $version, $crate::schema::field!($name, $field))?;
            $(if !matches!($version, $null) && $crate::codec::Wire::is_null(&value) {
                return Err($crate::codec::null_read($crate::schema::field!($name, $field)));
            })?
            value
        } else {
            $crate::schema::default!($type $(, $default)?)
        }
    };
    (
        $d:ident, $version:ident, $name:ident, $field:ident: $type:ty, $versions:pat_param,
        [$($null:pat_param)?] [$tag:literal] [$($default:expr)?]
    ) => {
        { let value: $type = $crate::schema::default!($type $(, $default)?); value }
    };
}

/// Writes an untagged field, counts a tagged one, and refuses what the version cannot carry.
macro_rules! write {
    (
        $self:ident, $e:ident, $version:ident, $tags:ident, $name:ident, $field:ident: $type:ty,
        $versions:pat_param, [$($ignorable:ident)?] [$($null:pat_param)?] [] [$($default:expr)?]
    ) => {
        if matches!($version, $versions) {
            let path = $crate::schema::field!($name, $field);
            $(if !matches!($version, $null) && $crate::codec::Wire::is_null(&$self.$field) {
                return Err($crate::codec::null_written(path));
            })?
            $crate::codec::write_field(&$self.$field, $e, $version, path)?;
        }
        $crate::schema::refuse!(
            $self, $version, $name, $field: $type, $versions, [$($ignorable)?] [$($default)?]
        );
    };
    (
        $self:ident, $e:ident, $version:ident, $tags:ident, $name:ident, $field:ident: $type:ty,
        $versions:pat_param, [$($ignorable:ident)?] [$($null:pat_param)?] [$tag:literal]
        [$($default:expr)?]
    ) => {
        let $field = matches!($version, $versions)
            && $self.$field != $crate::schema::default!($type $(, $default)?);
        $tags += u32::from($field);
        $crate::schema::refuse!(
            $self, $version, $name, $field: $type, $versions, [$($ignorable)?] [$($default)?]
        );
    };
}

macro_rules! refuse {
    (
        $self:ident, $version:ident, $name:ident, $field:ident: $type:ty, $versions:pat_param,
        [] [$($default:expr)?]
    ) => {
        if !matches!($version, $versions)
            && $self.$field != $crate::schema::default!($type $(, $default)?)
        {
            let path = $crate::schema::field!($name, $field);
            return Err($crate::codec::not_in_version($version, path));
        }
    };
    (
        $self:ident, $version:ident, $name:ident, $field:ident: $type:ty, $versions:pat_param,
        [ignorable] [$($default:expr)?]
    ) => {};
}

pub(crate) use {default, field, min, read, refuse, sample, schema, structure, tags, write};
