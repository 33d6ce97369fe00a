//! Kafka's error codes.

use std::fmt;

macro_rules! errors {
    ($($code:literal $name:ident $kind:ident $message:literal;)*) => {
        impl ErrorCode {
            $(#[doc = concat!("Code ", $code, ": ", $message, ".")]
            pub const $name: Self = Self($code);)*

            /// Every code known, ascending.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Kafka's name; `None` if the code is not known.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// What to say where the broker has nothing better.
            #[must_use]
            pub const fn message(self) -> &'static str {
                match self.0 {
                    $($code => $message,)*
                    _ => "unknown error code",
                }
            }

            /// Whether Kafka's clients send the same request again after this error.
            #[must_use]
            pub const fn is_retriable(self) -> bool {
                match self.0 {
                    $($code => retriable!($kind),)*
                    _ => false,
                }
            }
        }
    };
}

macro_rules! retriable {
    (retriable) => {
        true
    };
    (fatal) => {
        false
    };
}

/// An error code as it stands on the wire. Unknown ones are kept.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i16);

impl ErrorCode {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> i16 {
        self.0
    }

    /// Whether this is an error at all.
    #[must_use]
    pub const fn is_err(self) -> bool {
        self.0 != 0
    }
}

impl From<i16> for ErrorCode {
    fn from(code: i16) -> Self {
        Self(code)
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> Self {
        code.0
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}({})", self.0)
    }
}

/// Kafka's name of the code.
impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("UNKNOWN"))
    }
}

impl std::error::Error for ErrorCode {}

errors! {
    -1 UNKNOWN_SERVER_ERROR fatal "the server met an unexpected error";
    0 NONE fatal "no error";
    1 OFFSET_OUT_OF_RANGE fatal "the offset is outside the range that the server holds";
    2 CORRUPT_MESSAGE retriable "the message is corrupt";
    3 UNKNOWN_TOPIC_OR_PARTITION retriable "the server does not host this partition";
    4 INVALID_FETCH_SIZE fatal "the fetch size is invalid";
    5 LEADER_NOT_AVAILABLE retriable "the partition has no leader at present";
    6 NOT_LEADER_OR_FOLLOWER retriable "this broker is not the partition's leader or a follower";
    7 REQUEST_TIMED_OUT retriable "the request timed out";
    8 BROKER_NOT_AVAILABLE fatal "the broker is not available";
    9 REPLICA_NOT_AVAILABLE retriable "the replica is not available";
    10 MESSAGE_TOO_LARGE fatal "the message is larger than the server accepts";
    11 STALE_CONTROLLER_EPOCH fatal "the controller has moved to another broker";
    12 OFFSET_METADATA_TOO_LARGE fatal "the metadata of the offset is too large";
    13 NETWORK_EXCEPTION retriable "the server closed the connection before it answered";
    14 COORDINATOR_LOAD_IN_PROGRESS retriable "the coordinator is still loading";
    15 COORDINATOR_NOT_AVAILABLE retriable "the coordinator is not available";
    16 NOT_COORDINATOR retriable "this broker is not the coordinator";
    17 INVALID_TOPIC_EXCEPTION fatal "the topic is invalid";
    18 RECORD_LIST_TOO_LARGE fatal "the batch is larger than a segment may be";
    19 NOT_ENOUGH_REPLICAS retriable "too few replicas are in sync";
    20 NOT_ENOUGH_REPLICAS_AFTER_APPEND retriable "written, but to too few replicas";
    21 INVALID_REQUIRED_ACKS fatal "the value of `acks` is invalid";
    22 ILLEGAL_GENERATION fatal "the generation is not the group's";
    23 INCONSISTENT_GROUP_PROTOCOL fatal "the member's protocols do not fit the group";
    24 INVALID_GROUP_ID fatal "the group id is invalid";
    25 UNKNOWN_MEMBER_ID fatal "the coordinator does not know this member";
    26 INVALID_SESSION_TIMEOUT fatal "the session timeout is outside the allowed range";
    27 REBALANCE_IN_PROGRESS fatal "the group is rebalancing: join again";
    28 INVALID_COMMIT_OFFSET_SIZE fatal "the size of the offset commit is invalid";
    29 TOPIC_AUTHORIZATION_FAILED fatal "not authorized for the topic";
    30 GROUP_AUTHORIZATION_FAILED fatal "not authorized for the group";
    31 CLUSTER_AUTHORIZATION_FAILED fatal "not authorized for the cluster";
    32 INVALID_TIMESTAMP fatal "the timestamp is outside the allowed range";
    33 UNSUPPORTED_SASL_MECHANISM fatal "the sasl mechanism is not supported";
    34 ILLEGAL_SASL_STATE fatal "the request does not fit the state of the sasl exchange";
    35 UNSUPPORTED_VERSION fatal "the version is not supported";
    36 TOPIC_ALREADY_EXISTS fatal "the topic exists already";
    37 INVALID_PARTITIONS fatal "the number of partitions is below 1";
    38 INVALID_REPLICATION_FACTOR fatal "the replication factor is invalid";
    39 INVALID_REPLICA_ASSIGNMENT fatal "the replica assignment is invalid";
    40 INVALID_CONFIG fatal "the configuration is invalid";
    41 NOT_CONTROLLER retriable "this broker is not the controller";
    42 INVALID_REQUEST fatal "the request is invalid";
    43 UNSUPPORTED_FOR_MESSAGE_FORMAT fatal "the message format does not support the request";
    44 POLICY_VIOLATION fatal "the request violates a policy";
    45 OUT_OF_ORDER_SEQUENCE_NUMBER fatal "the sequence number is out of order";
    46 DUPLICATE_SEQUENCE_NUMBER fatal "the sequence number is a duplicate";
    47 INVALID_PRODUCER_EPOCH fatal "the producer's epoch is old";
    48 INVALID_TXN_STATE fatal "it does not fit the state of the transaction";
    49 INVALID_PRODUCER_ID_MAPPING fatal "the producer id is not the transactional id's";
    50 INVALID_TRANSACTION_TIMEOUT fatal "the transaction timeout is out of range";
    51 CONCURRENT_TRANSACTIONS retriable "another operation on the transaction is under way";
    52 TRANSACTION_COORDINATOR_FENCED fatal "the transaction coordinator has been superseded";
    53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED fatal "not authorized";
    54 SECURITY_DISABLED fatal "security is disabled";
    55 OPERATION_NOT_ATTEMPTED fatal "the operation was not attempted";
    56 KAFKA_STORAGE_ERROR retriable "the storage failed";
    57 LOG_DIR_NOT_FOUND fatal "no such log directory";
    58 SASL_AUTHENTICATION_FAILED fatal "authentication failed";
    59 UNKNOWN_PRODUCER_ID fatal "the producer id is not known";
    60 REASSIGNMENT_IN_PROGRESS fatal "a reassignment is in progress";
    61 DELEGATION_TOKEN_AUTH_DISABLED fatal "delegation tokens are disabled";
    62 DELEGATION_TOKEN_NOT_FOUND fatal "no such delegation token";
    63 DELEGATION_TOKEN_OWNER_MISMATCH fatal "the principal is not the token's owner";
    64 DELEGATION_TOKEN_REQUEST_NOT_ALLOWED fatal "not allowed on this connection";
    65 DELEGATION_TOKEN_AUTHORIZATION_FAILED fatal "not authorized";
    66 DELEGATION_TOKEN_EXPIRED fatal "the delegation token has expired";
    67 INVALID_PRINCIPAL_TYPE fatal "the principal type is not supported";
    68 NON_EMPTY_GROUP fatal "the group is not empty";
    69 GROUP_ID_NOT_FOUND fatal "no such group";
    70 FETCH_SESSION_ID_NOT_FOUND retriable "no such fetch session";
    71 INVALID_FETCH_SESSION_EPOCH retriable "the epoch of the fetch session is invalid";
    72 LISTENER_NOT_FOUND retriable "the leader has no listener that matches this one";
    73 TOPIC_DELETION_DISABLED fatal "topics cannot be deleted here";
    74 FENCED_LEADER_EPOCH retriable "the leader epoch is older than the broker's";
    75 UNKNOWN_LEADER_EPOCH retriable "the leader epoch is newer than the broker's";
    76 UNSUPPORTED_COMPRESSION_TYPE fatal "the compression type is not supported here";
    77 STALE_BROKER_EPOCH fatal "the broker's epoch has changed";
    78 OFFSET_NOT_AVAILABLE retriable "the leader does not know its high watermark yet";
    79 MEMBER_ID_REQUIRED fatal "join again with the member id given";
    80 PREFERRED_LEADER_NOT_AVAILABLE retriable "the preferred leader is not available";
    81 GROUP_MAX_SIZE_REACHED fatal "the group is full";
    82 FENCED_INSTANCE_ID fatal "another member with this instance id has taken over";
    83 ELIGIBLE_LEADERS_NOT_AVAILABLE retriable "no eligible leader is available";
    84 ELECTION_NOT_NEEDED retriable "no election is needed";
    85 NO_REASSIGNMENT_IN_PROGRESS fatal "no reassignment is in progress";
    86 GROUP_SUBSCRIBED_TO_TOPIC fatal "the group is subscribed to the topic";
    87 INVALID_RECORD fatal "the record is invalid";
    88 UNSTABLE_OFFSET_COMMIT retriable "offsets of a pending transaction are not stable yet";
    89 THROTTLING_QUOTA_EXCEEDED retriable "the quota is exceeded";
    90 PRODUCER_FENCED fatal "a newer producer has taken over the transactional id";
    91 RESOURCE_NOT_FOUND fatal "no such resource";
    92 DUPLICATE_RESOURCE fatal "the resource is named twice";
    93 UNACCEPTABLE_CREDENTIAL fatal "the credential is not acceptable";
    94 INCONSISTENT_VOTER_SET fatal "the voter sets differ";
    95 INVALID_UPDATE_VERSION fatal "the update version is invalid";
    96 FEATURE_UPDATE_FAILED fatal "the features could not be updated";
    97 PRINCIPAL_DESERIALIZATION_FAILURE fatal "the principal could not be read";
    98 SNAPSHOT_NOT_FOUND fatal "no such snapshot";
    99 POSITION_OUT_OF_RANGE fatal "the position is outside the snapshot";
    100 UNKNOWN_TOPIC_ID retriable "the server does not host this topic id";
    101 DUPLICATE_BROKER_REGISTRATION fatal "the broker id is in use";
    102 BROKER_ID_NOT_REGISTERED fatal "the broker id is not registered";
    103 INCONSISTENT_TOPIC_ID retriable "the topic id is not the one of the log";
    104 INCONSISTENT_CLUSTER_ID fatal "the cluster id is not the server's";
    105 TRANSACTIONAL_ID_NOT_FOUND fatal "no such transactional id";
    106 FETCH_SESSION_TOPIC_ID_ERROR retriable "the fetch session mixes topic ids and names";
    107 INELIGIBLE_REPLICA fatal "a replica is not eligible";
    108 NEW_LEADER_ELECTED fatal "a new leader has been elected";
    109 OFFSET_MOVED_TO_TIERED_STORAGE fatal "the offset has moved to tiered storage";
    110 FENCED_MEMBER_EPOCH fatal "the member's epoch is fenced: join again";
    111 UNRELEASED_INSTANCE_ID fatal "the instance id is in use by another member";
    112 UNSUPPORTED_ASSIGNOR fatal "the assignor is not supported";
    113 STALE_MEMBER_EPOCH fatal "the member's epoch is stale: heartbeat first";
    114 MISMATCHED_ENDPOINT_TYPE fatal "the endpoint is of another type";
    115 UNSUPPORTED_ENDPOINT_TYPE fatal "the endpoint type is not supported";
    116 UNKNOWN_CONTROLLER_ID fatal "no such controller";
    117 UNKNOWN_SUBSCRIPTION_ID fatal "no such telemetry subscription";
    118 TELEMETRY_TOO_LARGE fatal "the telemetry is too large";
    119 INVALID_REGISTRATION fatal "the registration is invalid";
    120 TRANSACTION_ABORTABLE fatal "the transaction must be aborted";
    121 INVALID_RECORD_STATE fatal "the state of the record does not allow this";
    122 SHARE_SESSION_NOT_FOUND retriable "no such share session";
    123 INVALID_SHARE_SESSION_EPOCH retriable "the epoch of the share session is invalid";
    124 FENCED_STATE_EPOCH fatal "the state epoch is fenced";
    125 INVALID_VOTER_KEY fatal "the key of the voter is not the replica's";
    126 DUPLICATE_VOTER fatal "the voter exists already";
    127 VOTER_NOT_FOUND fatal "no such voter";
    128 INVALID_REGULAR_EXPRESSION fatal "the regular expression is invalid";
    129 REBOOTSTRAP_REQUIRED fatal "the client's metadata is stale: bootstrap again";
    130 STREAMS_INVALID_TOPOLOGY fatal "the topology is invalid";
    131 STREAMS_INVALID_TOPOLOGY_EPOCH fatal "the topology epoch is invalid";
    132 STREAMS_TOPOLOGY_FENCED fatal "the topology epoch is old";
    133 SHARE_SESSION_LIMIT_REACHED retriable "the limit of share sessions is reached";
    134 GROUP_DELETION_FAILED fatal "the group could not be deleted";
    135 STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED fatal "the description could not be updated";
    136 CONTROLLER_ID_NOT_REGISTERED fatal "the controller id is not registered";
}
