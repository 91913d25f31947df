// The official client of Event Hubs controlled by a test. Each line of standard input is a command, each line of standard output an event; both are
// JSON.
'use strict'
const readline = require('readline')
const { BlobCheckpointStore } = require('@azure/eventhubs-checkpointstore-blob')
const { BlobServiceClient, ContainerClient } = require('@azure/storage-blob')
const { EventHubConsumerClient, earliestEventPosition, latestEventPosition } = require('@azure/event-hubs')
const WebSocket = require('ws')
const { say, text, why } = require('./common')

const clients = new Map() // by name
const readers = new Map() // subscriptions by name

// start makes a start position of a command's field.
const start = (at) => (at === 'earliest' ? earliestEventPosition : at === 'latest' ? latestEventPosition : at)

// shown is an event of the hub as an event of this script.
const shown = (name, partition, e) => ({
  on: 'event', name, topic: partition, payload: JSON.stringify(e.body), id: text(e.messageId), contentType: text(e.contentType),
  text: `${e.sequenceNumber} ${e.offset}`, properties: e.properties, count: e.enqueuedTimeUtc.getTime() ? 1 : 0,
  annotations: Object.fromEntries(Object.entries(e.systemProperties || {}).map(([k, v]) => [k, text(v)])),
})

// containerOf returns the client of a container: by the connection string of its account, or by a URL with a signature.
const containerOf = ({ account, container }) => (account ? BlobServiceClient.fromConnectionString(account).getContainerClient(container)
  : new ContainerClient(container))

const commands = {
  // open makes a client, over WebSocket and with a store of checkpoints in a container if the command says so.
  // Partitions of a processor that says nothing for so many milliseconds of ownership are free.
  open({ name, connectionString, group, account, container, webSocket, ownership }) {
    const options = { retryOptions: { maxRetries: 0 }, loadBalancingOptions: { updateIntervalInMs: 500 } }
    if (ownership) options.loadBalancingOptions.partitionOwnershipExpirationIntervalInMs = ownership
    if (webSocket) options.webSocketOptions = { webSocket: WebSocket }
    const store = container ? [new BlobCheckpointStore(containerOf({ account, container }))] : []
    clients.set(name, new EventHubConsumerClient(group, connectionString, ...store, options))
    say({ on: 'opened', name })
  },
  // blobs does with a container of an account what a back end does, and tells each result.
  async blobs({ name, account, container }) {
    const told = async (what, call) => {
      try {
        say({ on: 'blob', name, topic: what, payload: JSON.stringify(await call()) })
      } catch (err) {
        say({ on: 'blob', name, topic: what, text: `${err.statusCode} ${err.code || (err.details || {}).errorCode}` }) // HEAD has no body
      }
    }
    const c = containerOf({ account, container })
    const blob = c.getBlockBlobClient('dir/größe 1&2.txt')
    const names = async (all) => { const out = []; for await (const b of all) out.push(b.name); return out }
    const read = async (b, ...range) => (await b.downloadToBuffer(...range)).toString()
    await told('exists', () => c.exists())
    await told('create', async () => (await c.createIfNotExists()).succeeded)
    await told('create again', () => c.create())
    await told('upload', async () => (await blob.upload('0123456789', 10, { metadata: { One: '1' } })).requestId !== '')
    await told('upload new', () => blob.upload('', 0, { conditions: { ifNoneMatch: '*' } }))
    await told('upload changed', () => blob.upload('', 0, { conditions: { ifMatch: '"0x1"' } }))
    await told('read', () => read(blob))
    await told('read a part', () => read(blob, 2, 3))
    await told('properties', async () => { const p = await blob.getProperties(); return [p.contentLength, p.metadata] })
    await told('blocks', async () => {
      const big = c.getBlockBlobClient('blocks')
      await big.uploadData(Buffer.alloc(100_000, 'x'), { maxSingleShotSize: 1000, blockSize: 30_000 })
      return (await read(big)).length
    })
    await told('list', () => names(c.listBlobsFlat()))
    await told('pages', async () => {
      const pages = []
      for await (const p of c.listBlobsFlat({ prefix: '' }).byPage({ maxPageSize: 1 })) pages.push(p.segment.blobItems.length)
      return pages
    })
    await told('folders', () => names(c.listBlobsByHierarchy('/')))
    await told('sign', async () => {
      const { ContainerSASPermissions } = require('@azure/storage-blob')
      const url = await c.generateSasUrl({ permissions: ContainerSASPermissions.parse('r'), expiresOn: new Date(Date.now() + 60_000) })
      const reader = new ContainerClient(url)
      await told('signed list', () => names(reader.listBlobsFlat()))
      return read(reader.getBlobClient('dir/größe 1&2.txt'))
    })
    await told('delete', async () => (await blob.deleteIfExists()).succeeded)
    await told('read deleted', () => read(blob))
    await told('containers', () => names(BlobServiceClient.fromConnectionString(account).listContainers()))
    await told('delete container', async () => (await c.delete()).requestId !== '')
    await told('list deleted', () => names(c.listBlobsFlat()))
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
  // read subscribes to a partition, or to all. Each event is told, and checkpointed if the client has a store: before it is told, or after if the
  // command says so.
  read({ name, client, partition, at, epoch, metrics, wait, after }) {
    const handlers = {
      async processEvents(events, context) {
        for (const e of events) {
          if (!after) await context.updateCheckpoint(e)
          const last = context.lastEnqueuedEventProperties
          say({ ...shown(name, context.partitionId, e), delivery: last ? Number(last.sequenceNumber) : 0 })
          if (after) await context.updateCheckpoint(e)
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
