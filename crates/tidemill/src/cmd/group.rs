//! `tidemill group`.

use std::{collections::BTreeMap, io::Write};

use tidemill_client::Client;
use tidemill_runtime::Runtime;
use tidemill_wire::{
    codec::Str,
    messages::{
        DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest, OffsetFetchRequest,
        offset_fetch::OffsetFetchRequestGroup,
    },
};

use super::{CommandError, check, connect, offsets};
use crate::cli::{Bootstrap, Group};

/// Names topics instead of ids: the newest version that does.
const OFFSET_FETCH_BY_NAME: i16 = 9;

/// Runs the command.
pub async fn run(
    to: &Bootstrap,
    action: Group,
    runtime: &Runtime,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let client = connect(to, runtime).await?;
    match action {
        Group::List => list(&client, out).await,
        Group::Describe { id } => describe(&client, &id, out).await,
        Group::Delete { id } => delete(&client, &id, out).await,
    }
}

async fn list(client: &Client, out: &mut impl Write) -> Result<(), CommandError> {
    let answer = client.call(&ListGroupsRequest::default()).await?;
    check("groups", answer.error_code, None)?;
    let mut rows: Vec<_> = answer
        .groups
        .iter()
        .map(|g| (&g.group_id, &g.group_state))
        .collect();
    rows.sort();
    for (id, state) in rows {
        writeln!(out, "{id}\t{state}")?;
    }
    Ok(())
}

async fn describe(client: &Client, id: &str, out: &mut impl Write) -> Result<(), CommandError> {
    let request = DescribeGroupsRequest {
        groups: vec![Str::from(id.to_owned())],
        ..Default::default()
    };
    let answer = client.call(&request).await?;
    for group in &answer.groups {
        check(id, group.error_code, group.error_message.as_deref())?;
        writeln!(
            out,
            "group {id} state {} protocol {}",
            group.group_state, group.protocol_data
        )?;
        for member in &group.members {
            writeln!(
                out,
                "member {} client {} host {}",
                member.member_id, member.client_id, member.client_host
            )?;
        }
    }
    for (topic, committed) in committed(client, id).await? {
        let indexes: Vec<i32> = committed.keys().copied().collect();
        let ends = offsets::list(client, &topic, &indexes, offsets::LATEST).await?;
        let starts = offsets::list(client, &topic, &indexes, offsets::EARLIEST).await?;
        for (index, offset) in committed {
            let end = ends.get(&index).copied().unwrap_or(offset);
            let start = starts.get(&index).copied().unwrap_or(0);
            let lag = (end - offset.max(start)).max(0);
            writeln!(
                out,
                "offset {topic}-{index} committed {offset} end {end} lag {lag}"
            )?;
        }
    }
    Ok(())
}

type Committed = BTreeMap<String, BTreeMap<i32, i64>>;

async fn committed(client: &Client, id: &str) -> Result<Committed, CommandError> {
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: Str::from(id.to_owned()),
            topics: None,
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    };
    let answer = client.call_up_to(OFFSET_FETCH_BY_NAME, &request).await?;
    let mut found = Committed::new();
    for group in &answer.groups {
        check(id, group.error_code, None)?;
        for topic in &group.topics {
            let offsets = found.entry(topic.name.as_str().to_owned()).or_default();
            for part in topic
                .partitions
                .iter()
                .filter(|part| part.committed_offset >= 0)
            {
                offsets.insert(part.partition_index, part.committed_offset);
            }
        }
    }
    Ok(found)
}

async fn delete(client: &Client, id: &str, out: &mut impl Write) -> Result<(), CommandError> {
    let request = DeleteGroupsRequest {
        groups_names: vec![Str::from(id.to_owned())],
    };
    let answer = client.call(&request).await?;
    for result in &answer.results {
        check(id, result.error_code, result.error_message.as_deref())?;
    }
    writeln!(out, "deleted `{id}`")?;
    Ok(())
}
