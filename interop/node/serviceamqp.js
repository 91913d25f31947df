// The official SDK's client of back ends over AMQP, controlled by a test: see service.js for the lines. The client has a name; so have its receivers,
// "feedback" and "files", whose messages are kept until the test settles them.
'use strict'
const readline = require('readline')
const { Amqp, AmqpWs, Client, SharedAccessSignature } = require('azure-iothub')
const { Message, NoRetry } = require('azure-iot-common')
const { forward, say, text, why } = require('./common')

const transports = { amqp: Amqp, 'amqp-ws': AmqpWs }
const receivers = { feedback: 'getFeedbackReceiver', files: 'getFileNotificationReceiver' }

let client
const open = new Map() // receivers by name
const kept = new Map() // messages by name and number

// answer reports the result of a promise.
async function answer(name, call) {
  try {
    const done = await call()
    say({ on: 'answer', name, payload: done ? text(done.constructor.name) : '', text: '' })
  } catch (err) {
    say({ on: 'answer', name, text: why(err) + (err.amqpError ? ` (${why(err.amqpError)})` : '') })
  }
}

// arrived reports a message of a receiver.
function arrived(name, m) {
  const id = `${name} ${kept.size + 1}`
  kept.set(id, m)
  const raw = m.transportObj
  const annotations = raw.message_annotations || {}
  say({
    on: 'message', name, id, payload: text(m.getData()), contentType: text(m.contentType), contentEncoding: text(m.contentEncoding),
    user: text(raw.user_id), annotations: { 'iothub-enqueuedtime': text(Number(annotations['iothub-enqueuedtime'])) },
  })
}

const commands = {
  // connect makes the client, from a connection string or from a token, and opens it. It retries nothing, so that an error is seen at once.
  connect({ connectionString, sign, transport, forward: pairs }) {
    forward(pairs)
    const kind = transports[transport]
    client = sign
      ? Client.fromSharedAccessSignature(SharedAccessSignature.create(...sign, Math.ceil(Date.now() / 1000) + 3600).toString(), kind)
      : Client.fromConnectionString(connectionString, kind)
    client.setRetryPolicy(new NoRetry())
    client.on('disconnect', (e) => say({ on: 'disconnect', name: 'client', text: why(e.reason) }))
    answer('connect', () => client.open())
  },
  send({ device, payload, fields, properties, plain }) {
    let m = payload
    if (!plain) {
      m = new Message(payload)
      Object.assign(m, fields)
      if (fields.expiryTimeUtc) m.expiryTimeUtc = Date.parse(fields.expiryTimeUtc) // a Date fails
      for (const [name, value] of Object.entries(properties)) m.properties.add(name, value)
    }
    answer('send', () => client.send(device, m))
  },
  receive({ name }) {
    answer(name, async () => {
      const r = await new Promise((resolve, reject) => client[receivers[name]]((err, r) => (err ? reject(err) : resolve(r))))
      if (open.get(name) === r) return r
      open.set(name, r)
      r.on('message', (m) => arrived(name, m))
      r.on('error', (err) => say({ on: 'error', name, text: why(err) }))
      return r
    })
  },
  // settle calls complete, abandon or reject.
  settle({ name, id, how }) {
    answer('settle', () => open.get(name)[how](kept.get(id)))
  },
  detach({ name }) {
    answer('detach', () => open.get(name).detach())
  },
  close() {
    answer('close', () => client.close())
  },
}

process.on('unhandledRejection', (err) => say({ on: 'unhandled', text: why(err) }))

readline.createInterface({ input: process.stdin })
  .on('line', (line) => {
    const command = JSON.parse(line)
    commands[command.do](command)
  })
  .on('close', () => process.exit(0))
