// kafkajs. Usage: node kafkajs.mjs BROKER
import { createRequire } from 'node:module'
import zlib from 'node:zlib'
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import lz4 from 'lz4-napi'
import { acksFrom, main, sleep } from './flow.mjs'

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs
const { version } = createRequire(import.meta.url)('kafkajs/package.json')
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => lz4.compressFrameSync(encoder.buffer),
  decompress: async buffer => lz4.decompressFrameSync(buffer)
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => zlib.zstdCompressSync(encoder.buffer),
  decompress: async buffer => zlib.zstdDecompressSync(buffer)
})
const CODECS = { gzip: 'GZIP', snappy: 'Snappy', lz4: 'LZ4', zstd: 'ZSTD' }

const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.NOTHING })
let groups = 0

function object (pairs) { // kafkajs takes an object; a repeated name has an array of values
  const out = {}
  for (const [k, v] of pairs) out[k] = k in out ? [out[k], v].flat() : v
  return out
}
const pairs = headers => Object.entries(headers).flatMap(([k, v]) =>
  Array.isArray(v) ? v.map(x => [k, x]) : [[k, v]])

const adapter = {
  name: 'kafkajs',
  version,
  shapes: { nullHeaders: false }, // it cannot encode a null header

  async create (topic, numPartitions) {
    const admin = kafka.admin()
    await admin.connect()
    if (!await admin.createTopics({ topics: [{ topic, numPartitions }] })) throw Error('exists')
    await admin.disconnect()
  },

  async produce (topic, records, { codec, idempotent }) {
    const producer = kafka.producer(idempotent === undefined ? {} : { idempotent })
    await producer.connect()
    const answer = await producer.send({
      topic,
      ...(codec && { compression: CompressionTypes[CODECS[codec]] }),
      messages: records.map(([partition, key, value, headers]) =>
        ({ partition, key, value, headers: object(headers) }))
    })
    await producer.disconnect()
    return acksFrom(records, answer.map(a => [a.partition, Number(a.baseOffset)]))
  },

  async consume (topic, count) {
    const got = []
    const consumer = kafka.consumer({ groupId: `${topic}-reader-${groups++}` })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({
      eachMessage: async ({ partition, message: m }) => {
        got.push([partition, Number(m.offset), m.key, m.value, pairs(m.headers)])
      }
    })
    for (let i = 0; i < 300 && got.length < count; i++) await sleep(100)
    await consumer.disconnect()
    return got
  },

  async member (groupId, topic, seen) {
    let assigned = []
    const consumer = kafka.consumer({ groupId })
    consumer.on(consumer.events.GROUP_JOIN, e => {
      assigned = e.payload.memberAssignment[topic] ?? []
    })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({ eachMessage: async ({ message }) => seen(message.value) })
    return { assigned: () => assigned, stop: () => consumer.disconnect() }
  },

  async committed (groupId, topic) {
    const admin = kafka.admin()
    await admin.connect()
    const [found] = await admin.fetchOffsets({ groupId, topics: [topic] })
    await admin.disconnect()
    return found.partitions.sort((a, b) => a.partition - b.partition).map(p => p.offset)
  }
}

await main(adapter, Object.keys(CODECS))
