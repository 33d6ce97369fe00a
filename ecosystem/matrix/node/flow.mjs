// The checks every Node client goes through; each client brings an adapter with `name`, `version`,
//   create(topic, partitions)
//   produce(topic, records, {codec, idempotent}) -> [[partition, offset]] in the order of the records
//   consume(topic, count)                        -> [[partition, offset, key, value, headers]]
//   member(group, topic, seen)                   -> {assigned(), stop()}; `seen` is called with values
//   committed(group, topic, partitions)          -> [offset]
// A record is [partition, key, value, headers]; headers are [name, Buffer | null] pairs.
import assert from 'node:assert/strict'

const PARTITIONS = 3
const PER_PARTITION = 40
const GROUP_PARTITIONS = 4
const WAIT_MS = 45_000 // one step of the group checks

const bytes = text => Buffer.from(text)
export const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

function sample ({ nullHeaders = true, repeatedHeaders = true }) {
  const out = []
  for (let i = 0; i < PER_PARTITION; i++) {
    for (let p = 0; p < PARTITIONS; p++) {
      const key = i % 5 === 0 ? null : bytes(i % 5 === 1 ? '' : `key-${p}-${i}`)
      const text = `value-${p}-${i} `.repeat(i * i)
      const value = i % 7 === 0 ? null : bytes(i % 7 === 1 ? '' : text)
      const many = [['h', bytes('1')], ['empty', bytes('')]]
      if (repeatedHeaders) many.splice(1, 0, ['h', Buffer.from([0, 255])])
      if (nullHeaders) many.push(['none', null])
      out.push([p, key, value, i % 3 === 0 ? [] : i % 3 === 1 ? [['h', bytes('v')]] : many])
    }
  }
  return out
}

// Every record once, in order, at the offset its acknowledgement named, no gap.
function same (sent, acks, got) {
  assert.equal(acks.length, sent.length, 'acknowledgements')
  const want = new Map(sent.map((record, i) => {
    assert.equal(acks[i][0], record[0], 'acknowledged partition')
    return [`${acks[i][0]}/${acks[i][1]}`, record.slice(1)]
  }))
  assert.equal(want.size, sent.length, 'two records acknowledged at one offset')
  assert.equal(got.length, sent.length, 'records read')
  const next = new Map()
  for (const [p, offset, key, value, headers] of got) {
    assert.equal(Number(offset), next.get(p) ?? 0, `partition ${p}: order of offsets`)
    next.set(p, Number(offset) + 1)
    assert.deepEqual([key, value, headers], want.get(`${p}/${offset}`), `record ${p}/${offset}`)
  }
}

async function until (what, condition, state) {
  for (const end = Date.now() + WAIT_MS; !condition(); await sleep(50)) {
    assert.ok(Date.now() < end, `${what}: not within ${WAIT_MS} ms; ${JSON.stringify(state())}`)
  }
}

class Flow {
  constructor (adapter) {
    this.a = adapter
    this.records = sample(adapter.shapes ?? {})
    this.prefix = `m-${adapter.name.replace(/\W+/g, '-')}-${process.pid}-${Date.now()}`
    this.serial = 0
    this.failed = 0
  }

  async check (name, f) {
    const start = Date.now()
    let result = 'PASS'
    try {
      await f()
    } catch (e) {
      console.error(e)
      result = 'FAIL'
      this.failed++
    }
    console.log(`${this.a.name} ${name} ${result} ${((Date.now() - start) / 1000).toFixed(1)}`)
  }

  async round (suffix, { create = true, ...mode } = {}) {
    const topic = `${this.prefix}-${suffix}`
    if (create) await this.a.create(topic, PARTITIONS)
    const acks = await this.a.produce(topic, this.records, mode)
    same(this.records, acks, await this.a.consume(topic, this.records.length))
  }

  async more (count) {
    const values = Array.from({ length: count }, () => `g-${this.serial++}`)
    await this.a.produce(this.topic,
      values.map((v, i) => [i % GROUP_PARTITIONS, null, bytes(v), []]), {})
    return values
  }

  async join () {
    const m = { seen: new Set(), read: 0 }
    const see = value => { m.seen.add(value.toString()); m.read++ }
    return Object.assign(m, await this.a.member(this.gid, this.topic, see))
  }

  async group () {
    this.topic = `${this.prefix}-g`
    this.gid = `${this.prefix}-group`
    await this.a.create(this.topic, GROUP_PARTITIONS)
    const first = await this.more(200)
    const members = [await this.join()]
    const [a] = members
    const state = () => members.map(m => [m.assigned(), m.seen.size])
    await until('first member reads all', () => first.every(v => a.seen.has(v)), state)
    members.push(await this.join())
    const b = members[1]
    await until('both have partitions', () => a.assigned().length && b.assigned().length &&
      new Set([...a.assigned(), ...b.assigned()]).size === GROUP_PARTITIONS &&
      a.assigned().length + b.assigned().length === GROUP_PARTITIONS, state)
    const second = await this.more(200)
    await until('both read the second lot',
      () => second.every(v => a.seen.has(v) || b.seen.has(v)), state)
    for (const m of members) assert.ok(second.some(v => m.seen.has(v)), 'one member read all')
    await b.stop()
    await until('the first has all again', () => a.assigned().length === GROUP_PARTITIONS, state)
    const third = await this.more(100)
    await until('the first reads the third lot', () => third.every(v => a.seen.has(v)), state)
    await a.stop()
  }

  async commit () {
    const got = await this.a.committed(this.gid, this.topic, GROUP_PARTITIONS)
    const want = Array(GROUP_PARTITIONS).fill(this.serial / GROUP_PARTITIONS)
    assert.deepEqual(got.map(Number), want)
  }

  async resume () {
    const fresh = await this.more(40)
    const c = await this.join()
    await until('new records are read', () => fresh.every(v => c.seen.has(v)),
      () => [c.assigned(), c.seen.size])
    await sleep(500)
    await c.stop()
    assert.equal(c.read, fresh.length, 'records read by the new member')
  }
}

export async function main (adapter, codecs) {
  console.log(`# ${adapter.name} ${adapter.version}`)
  const f = new Flow(adapter)
  const topic = `${f.prefix}-t`
  let acks = []
  await f.check('create', () => adapter.create(topic, PARTITIONS))
  await f.check('produce', async () => {
    acks = await adapter.produce(topic, f.records, {})
    assert.equal(acks.length, f.records.length)
  })
  await f.check('consume', async () =>
    same(f.records, acks, await adapter.consume(topic, f.records.length)))
  await f.check('auto', () => f.round('auto', { create: false }))
  for (const codec of codecs) await f.check(codec, () => f.round(codec, { codec }))
  await f.check('idempotent', () => f.round('idem', { idempotent: true }))
  for (const name of ['group', 'commit', 'resume']) await f.check(name, () => f[name]())
  process.exit(f.failed ? 1 : 0) // no client's timers may hold up the end
}

// Acknowledgements from the base offset of each partition, which is all these clients tell.
export function acksFrom (records, base) {
  const next = new Map(base)
  return records.map(([p]) => {
    const offset = next.get(p)
    assert.notEqual(offset, undefined, `no acknowledgement for partition ${p}`)
    next.set(p, offset + 1)
    return [p, offset]
  })
}
