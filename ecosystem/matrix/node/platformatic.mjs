// @platformatic/kafka. Usage: node platformatic.mjs BROKER
import { readFileSync } from 'node:fs'
import { Admin, Consumer, Producer } from '@platformatic/kafka'
import { acksFrom, main, sleep } from './flow.mjs'

const manifest = new URL('node_modules/@platformatic/kafka/package.json', import.meta.url)
const { version } = JSON.parse(readFileSync(manifest))
const base = { clientId: 'matrix', bootstrapBrokers: [process.argv[2]] }
let groups = 0

async function reader (groupId, topic, mode, data) {
  const consumer = new Consumer({ ...base, groupId })
  const stream = await consumer.consume({ topics: [topic], autocommit: true, ...mode })
  stream.on('data', data)
  stream.on('error', e => console.error(e))
  // Closing drops what was queued for commit while another commit was in flight.
  const committed = async () => {
    for (let i = 0; i < 100 && stream.offsetsToCommit.size > 0; i++) await sleep(50)
    const offsets = [...stream.offsetsToCommit.values()]
    if (offsets.length > 0) await consumer.commit({ offsets })
  }
  const stop = async () => {
    await committed()
    await stream.close()
    await consumer.close()
  }
  return { consumer, stop }
}

const adapter = {
  name: 'platformatic',
  version,
  shapes: { nullHeaders: false, repeatedHeaders: false }, // it takes a map of buffers

  async create (topic, partitions) {
    const admin = new Admin(base)
    await admin.createTopics({ topics: [topic], partitions, replicas: 1 })
    await admin.close()
  },

  async produce (topic, records, { codec, idempotent }) {
    const producer = new Producer({ ...base, autocreateTopics: true })
    const bases = []
    // A send for each partition: the client repeats a whole request when one partition of a new
    // topic is not ready yet, which without idempotence doubles the records of the others.
    for (const p of new Set(records.map(r => r[0]))) {
      const { offsets } = await producer.send({
        ...(codec && { compression: codec }),
        ...(idempotent !== undefined && { idempotent }),
        ...(idempotent && { acks: -1 }),
        messages: records.filter(r => r[0] === p).map(([partition, key, value, headers]) => ({
          topic,
          partition,
          key: key ?? undefined,
          value: value ?? undefined,
          headers: new Map(headers.map(([k, v]) => [Buffer.from(k), v]))
        }))
      })
      bases.push([p, Number(offsets[0].offset)])
    }
    await producer.close()
    return acksFrom(records, bases)
  },

  async consume (topic, count) {
    const got = []
    const r = await reader(`${topic}-reader-${groups++}`, topic, { mode: 'earliest' }, m => {
      const headers = m.headerEntries.map(([k, v]) => [k.toString(), v])
      got.push([m.partition, Number(m.offset), m.key ?? null, m.value ?? null, headers])
    })
    for (let i = 0; i < 300 && got.length < count; i++) await sleep(100)
    await r.stop()
    return got
  },

  async member (groupId, topic, seen) {
    const mode = { mode: 'committed', fallbackMode: 'earliest' }
    const r = await reader(groupId, topic, mode, m => seen(m.value))
    const assigned = () => (r.consumer.assignments ?? [])
      .filter(a => a.topic === topic).flatMap(a => a.partitions)
    return { assigned, stop: r.stop }
  },

  async committed (groupId, topic, partitions) {
    const consumer = new Consumer({ ...base, groupId })
    const wanted = [{ topic, partitions: [...Array(partitions).keys()] }]
    const found = await consumer.listCommittedOffsets({ topics: wanted })
    await consumer.close()
    return found.get(topic)
  }
}

await main(adapter, ['gzip', 'snappy', 'lz4', 'zstd'])
