// The official client of Event Hubs controlled by a test. Each line of standard input is a command, each line of standard output an event; both are
// JSON.
'use strict'
const readline = require('readline')
const { EventHubConsumerClient, earliestEventPosition, latestEventPosition } = require('@azure/event-hubs')
const { say, text, why } = require('./common')

const clients = new Map() // by name
const readers = new Map() // subscriptions by name

// start makes a start position of a command's field.
const start = (at) => (at === 'earliest' ? earliestEventPosition : at === 'latest' ? latestEventPosition : at)

// A store of checkpoints in memory, for all clients of this process.
const owned = new Map()
const checkpoints = new Map()
let changes = 0
const store = {
  async listOwnership() { return [...owned.values()] },
  async claimOwnership(all) {
    return all.filter((o) => !owned.has(o.partitionId) || owned.get(o.partitionId).etag === o.etag).map((o) => {
      const mine = { ...o, etag: String(++changes), lastModifiedTimeInMs: Date.now() }
      owned.set(o.partitionId, mine)
      return mine
    })
  },
  async updateCheckpoint(c) { checkpoints.set(c.partitionId, c) },
  async listCheckpoints() { return [...checkpoints.values()] },
}

// shown is an event of the hub as an event of this script.
const shown = (name, partition, e) => ({
  on: 'event', name, topic: partition, payload: JSON.stringify(e.body), id: text(e.messageId), contentType: text(e.contentType),
  text: `${e.sequenceNumber} ${e.offset}`, properties: e.properties, count: e.enqueuedTimeUtc.getTime() ? 1 : 0,
  annotations: Object.fromEntries(Object.entries(e.systemProperties || {}).map(([k, v]) => [k, text(v)])),
})

const commands = {
  // open makes a client, with the store of checkpoints if the command says so.
  open({ name, connectionString, group, checkpoints: kept }) {
    const options = { retryOptions: { maxRetries: 0 } }
    clients.set(name, kept ? new EventHubConsumerClient(group, connectionString, store, options)
      : new EventHubConsumerClient(group, connectionString, options))
    say({ on: 'opened', name })
  },
  // describe answers with the properties of the event hub, or of a partition.
  async describe({ name, partition }) {
    try {
      const client = clients.get(name)
      const found = partition === undefined ? await client.getEventHubProperties() : await client.getPartitionProperties(partition)
      say({ on: 'described', name, payload: JSON.stringify(found) })
    } catch (err) {
      say({ on: 'described', name, text: why(err), condition: text(err.code) })
    }
  },
  // read subscribes to a partition, or to all. Each event is told, and checkpointed if the client has a store.
  read({ name, client, partition, at, epoch, metrics, wait }) {
    const handlers = {
      async processEvents(events, context) {
        for (const e of events) {
          await context.updateCheckpoint(e)
          const last = context.lastEnqueuedEventProperties
          say({ ...shown(name, context.partitionId, e), delivery: last ? Number(last.sequenceNumber) : 0 })
        }
      },
      async processError(err, context) { say({ on: 'failed', name, topic: text(context.partitionId), text: why(err), condition: text(err.code) }) },
      async processClose(reason) { say({ on: 'closed', name, text: text(reason) }) },
    }
    const options = { startPosition: start(at), maxBatchSize: 10, maxWaitTimeInSeconds: wait || 1, trackLastEnqueuedEventProperties: !!metrics }
    if (epoch !== undefined) options.ownerLevel = epoch
    const c = clients.get(client)
    readers.set(name, partition === undefined ? c.subscribe(handlers, options) : c.subscribe(partition, handlers, options))
    say({ on: 'reading', name })
  },
  async stop({ name }) {
    await readers.get(name).close()
    say({ on: 'stopped', name })
  },
  async close({ name }) {
    await clients.get(name).close()
    say({ on: 'ended', name })
  },
}

process.on('unhandledRejection', (err) => say({ on: 'unhandled', text: why(err) }))

readline.createInterface({ input: process.stdin })
  .on('line', (line) => {
    const command = JSON.parse(line)
    commands[command.do](command)
  })
  .on('close', () => process.exit(0))
