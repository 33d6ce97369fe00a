//! API keys, their versions, and requests and responses of any key.

use std::fmt;
use std::ops::RangeInclusive;

use crate::codec::{DecodeError, DecodeErrorKind, Decoder, EncodeError, Encoder, Message, Request};
use crate::messages::*;

/// Declares an enum of one message a key.
macro_rules! bodies {
    ($(#[$doc:meta])* $kind:ident: $($name:ident $message:ident)*) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)]
        pub enum $kind { $($name($message),)* }

        impl $kind {
            /// The key that it belongs to.
            #[must_use]
            pub const fn key(&self) -> ApiKey {
                match self { $(Self::$name(_) => ApiKey::$name,)* }
            }

            /// Reads the body.
            ///
            /// # Errors
            /// If the bytes are not this version of the message.
            pub fn decode(
                key: ApiKey,
                version: i16,
                decoder: &mut Decoder,
            ) -> Result<Self, DecodeError> {
                match key { $(ApiKey::$name => decoder.message(version).map(Self::$name),)* }
            }

            /// Writes the body.
            ///
            /// # Errors
            /// If the version cannot carry it.
            pub fn encode(&self, encoder: &mut Encoder, version: i16) -> Result<(), EncodeError> {
                match self { $(Self::$name(message) => message.encode(encoder, version),)* }
            }

            /// A made-up message that the version can carry.
            #[cfg(feature = "sample")]
            #[must_use]
            pub fn sample(key: ApiKey, version: i16, g: &mut crate::sample::Gen) -> Self {
                use crate::sample::Sample;
                match key { $(ApiKey::$name => Self::$name(Sample::sample(g, version)),)* }
            }
        }

        $(impl From<$message> for $kind {
            fn from(message: $message) -> Self {
                Self::$name(message)
            }
        })*
    };
}

/// Declares every API: key, name, messages, and the versions that ApiVersions advertises, if any.
macro_rules! apis {
    ($(
        $key:literal $name:ident: $request:ident, $response:ident
        $(advertise $advertised:expr)?;
    )*) => {
        /// The API keys whose messages are known, by Kafka's names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        #[allow(missing_docs)]
        pub enum ApiKey { $($name = $key,)* }

        impl ApiKey {
            /// Every key, ascending.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The key with this number.
            #[must_use]
            pub const fn from_code(code: i16) -> Option<Self> {
                match code {
                    $($key => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Kafka's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The versions that can be decoded and encoded.
            #[must_use]
            pub const fn versions(self) -> RangeInclusive<i16> {
                match self { $(Self::$name => <$request as Message>::VERSIONS,)* }
            }

            /// The first version with compact lengths and tagged fields; `i16::MAX` if none.
            #[must_use]
            pub const fn first_flexible(self) -> i16 {
                match self { $(Self::$name => <$request as Message>::FLEXIBLE,)* }
            }

            /// The versions that ApiVersions is to name; `None` if the API is not served.
            #[must_use]
            pub const fn advertised(self) -> Option<RangeInclusive<i16>> {
                match self {
                    $($(Self::$name => Some($advertised),)?)*
                    _ => None,
                }
            }
        }

        $(impl Request for $request {
            const KEY: ApiKey = ApiKey::$name;
            type Response = $response;
        })*

        bodies! {
            /// A request of any key.
            RequestKind: $($name $request)*
        }

        bodies! {
            /// A response to a request of any key.
            ResponseKind: $($name $response)*
        }
    };
}

// What is advertised is what this broker serves in full: no version more, no gap. The one
// exception is Produce 0-2, refused when used: librdkafka before 2.11.1 takes a broker without
// them for one that knows no compression (KAFKA-18659).
apis! {
    0 Produce: ProduceRequest, ProduceResponse advertise 0..=13;
    1 Fetch: FetchRequest, FetchResponse advertise 4..=18;
    2 ListOffsets: ListOffsetsRequest, ListOffsetsResponse advertise 1..=11;
    3 Metadata: MetadataRequest, MetadataResponse advertise 0..=13;
    8 OffsetCommit: OffsetCommitRequest, OffsetCommitResponse advertise 2..=10;
    9 OffsetFetch: OffsetFetchRequest, OffsetFetchResponse advertise 1..=10;
    10 FindCoordinator: FindCoordinatorRequest, FindCoordinatorResponse advertise 0..=6;
    11 JoinGroup: JoinGroupRequest, JoinGroupResponse advertise 0..=9;
    12 Heartbeat: HeartbeatRequest, HeartbeatResponse advertise 0..=4;
    13 LeaveGroup: LeaveGroupRequest, LeaveGroupResponse advertise 0..=5;
    14 SyncGroup: SyncGroupRequest, SyncGroupResponse advertise 0..=5;
    15 DescribeGroups: DescribeGroupsRequest, DescribeGroupsResponse advertise 0..=6;
    16 ListGroups: ListGroupsRequest, ListGroupsResponse advertise 0..=5;
    17 SaslHandshake: SaslHandshakeRequest, SaslHandshakeResponse;
    18 ApiVersions: ApiVersionsRequest, ApiVersionsResponse advertise 0..=5;
    19 CreateTopics: CreateTopicsRequest, CreateTopicsResponse advertise 2..=7;
    20 DeleteTopics: DeleteTopicsRequest, DeleteTopicsResponse advertise 1..=6;
    21 DeleteRecords: DeleteRecordsRequest, DeleteRecordsResponse advertise 0..=2;
    22 InitProducerId: InitProducerIdRequest, InitProducerIdResponse advertise 0..=5;
    23 OffsetForLeaderEpoch:
        OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse advertise 2..=4;
    24 AddPartitionsToTxn: AddPartitionsToTxnRequest, AddPartitionsToTxnResponse;
    25 AddOffsetsToTxn: AddOffsetsToTxnRequest, AddOffsetsToTxnResponse;
    26 EndTxn: EndTxnRequest, EndTxnResponse;
    28 TxnOffsetCommit: TxnOffsetCommitRequest, TxnOffsetCommitResponse;
    29 DescribeAcls: DescribeAclsRequest, DescribeAclsResponse;
    30 CreateAcls: CreateAclsRequest, CreateAclsResponse;
    31 DeleteAcls: DeleteAclsRequest, DeleteAclsResponse;
    32 DescribeConfigs: DescribeConfigsRequest, DescribeConfigsResponse advertise 1..=4;
    33 AlterConfigs: AlterConfigsRequest, AlterConfigsResponse advertise 0..=2;
    34 AlterReplicaLogDirs: AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse;
    35 DescribeLogDirs: DescribeLogDirsRequest, DescribeLogDirsResponse advertise 1..=5;
    36 SaslAuthenticate: SaslAuthenticateRequest, SaslAuthenticateResponse;
    37 CreatePartitions: CreatePartitionsRequest, CreatePartitionsResponse advertise 0..=3;
    38 CreateDelegationToken: CreateDelegationTokenRequest, CreateDelegationTokenResponse;
    39 RenewDelegationToken: RenewDelegationTokenRequest, RenewDelegationTokenResponse;
    40 ExpireDelegationToken: ExpireDelegationTokenRequest, ExpireDelegationTokenResponse;
    41 DescribeDelegationToken: DescribeDelegationTokenRequest, DescribeDelegationTokenResponse;
    42 DeleteGroups: DeleteGroupsRequest, DeleteGroupsResponse advertise 0..=2;
    43 ElectLeaders: ElectLeadersRequest, ElectLeadersResponse;
    44 IncrementalAlterConfigs:
        IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse advertise 0..=1;
    45 AlterPartitionReassignments:
        AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse;
    46 ListPartitionReassignments:
        ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse;
    47 OffsetDelete: OffsetDeleteRequest, OffsetDeleteResponse advertise 0..=0;
    48 DescribeClientQuotas: DescribeClientQuotasRequest, DescribeClientQuotasResponse;
    49 AlterClientQuotas: AlterClientQuotasRequest, AlterClientQuotasResponse;
    50 DescribeUserScramCredentials:
        DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse;
    51 AlterUserScramCredentials:
        AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse;
    55 DescribeQuorum: DescribeQuorumRequest, DescribeQuorumResponse;
    57 UpdateFeatures: UpdateFeaturesRequest, UpdateFeaturesResponse;
    60 DescribeCluster: DescribeClusterRequest, DescribeClusterResponse advertise 0..=2;
    61 DescribeProducers: DescribeProducersRequest, DescribeProducersResponse;
    64 UnregisterBroker: UnregisterBrokerRequest, UnregisterBrokerResponse;
    65 DescribeTransactions: DescribeTransactionsRequest, DescribeTransactionsResponse;
    66 ListTransactions: ListTransactionsRequest, ListTransactionsResponse;
    68 ConsumerGroupHeartbeat: ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse;
    69 ConsumerGroupDescribe: ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse;
    71 GetTelemetrySubscriptions:
        GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse;
    72 PushTelemetry: PushTelemetryRequest, PushTelemetryResponse;
    74 ListConfigResources: ListConfigResourcesRequest, ListConfigResourcesResponse;
    75 DescribeTopicPartitions:
        DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse advertise 0..=0;
    76 ShareGroupHeartbeat: ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse;
    77 ShareGroupDescribe: ShareGroupDescribeRequest, ShareGroupDescribeResponse;
    78 ShareFetch: ShareFetchRequest, ShareFetchResponse;
    79 ShareAcknowledge: ShareAcknowledgeRequest, ShareAcknowledgeResponse;
    88 StreamsGroupHeartbeat: StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse;
    89 StreamsGroupDescribe: StreamsGroupDescribeRequest, StreamsGroupDescribeResponse;
    90 DescribeShareGroupOffsets:
        DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse;
    91 AlterShareGroupOffsets: AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse;
    92 DeleteShareGroupOffsets: DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse;
    93 StreamsGroupTopologyDescriptionUpdate:
        StreamsGroupTopologyDescriptionUpdateRequest, StreamsGroupTopologyDescriptionUpdateResponse;
}

impl ApiKey {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// The key with this number.
    ///
    /// # Errors
    /// If no such key is known.
    pub const fn try_from_code(code: i16) -> Result<Self, DecodeError> {
        match Self::from_code(code) {
            Some(key) => Ok(key),
            None => Err(DecodeError::new(DecodeErrorKind::UnknownApiKey(code))),
        }
    }

    /// Whether the messages can be decoded and encoded in this version.
    #[must_use]
    pub const fn supports(self, version: i16) -> bool {
        let versions = self.versions();
        *versions.start() <= version && version <= *versions.end()
    }

    /// The version of the request's header: 2 with tagged fields, 1 without.
    #[must_use]
    pub const fn request_header_version(self, version: i16) -> i16 {
        if version >= self.first_flexible() {
            2
        } else {
            1
        }
    }

    /// The version of the response's header: 1 with tagged fields, 0 without. ApiVersions stays at
    /// 0, as its reader does not yet know what the broker speaks (K2).
    #[must_use]
    pub const fn response_header_version(self, version: i16) -> i16 {
        match self {
            Self::ApiVersions => 0,
            _ if version >= self.first_flexible() => 1,
            _ => 0,
        }
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
