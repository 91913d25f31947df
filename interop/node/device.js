// The official device SDK for Node.js under remote control, over any of its transports. Each line of standard input is a command, each line of standard output something
// that happened; both are JSON. What the SDK retries by itself, it retries; nothing else is.
'use strict'
const net = require('net')
const readline = require('readline')
const { Client, Message, SharedAccessKeyAuthenticationProvider } = require('azure-iot-device')
const { Amqp, AmqpWs } = require('azure-iot-device-amqp')
const { Http } = require('azure-iot-device-http')
const { Mqtt, MqttWs } = require('azure-iot-device-mqtt')

const transports = { amqp: Amqp, 'amqp-ws': AmqpWs, mqtt: Mqtt, 'mqtt-ws': MqttWs, http: Http }
const clients = new Map() // by name: SDK's client, its deliveries by number
const say = (event) => process.stdout.write(JSON.stringify(event) + '\n')
const text = (v) => (v === undefined || v === null ? '' : String(v))
const why = (err) => (err ? `${err.name}: ${err.message}` : '')

// The ports of the service are fixed in the SDK. In their place come those of the hub under test, by a name look-up and a port forwarding of this process; names in TLS and in
// what is signed stay as they are.
const ports = new Map()
const connect = net.Socket.prototype.connect
net.Socket.prototype.connect = function (...args) {
  const options = Array.isArray(args[0]) ? args[0][0] : args[0]
  const port = options && ports.get(Number(options.port))
  if (port) {
    options.port = port
    options.lookup = (host, o, done) => (o.all ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4))
  }
  return connect.apply(this, args)
}

function made({ payload, id, correlation, contentType, contentEncoding, properties }) {
  const m = new Message(payload)
  if (id) m.messageId = id
  if (correlation) m.correlationId = correlation
  if (contentType) m.contentType = contentType
  if (contentEncoding) m.contentEncoding = contentEncoding
  for (const [k, v] of Object.entries(properties || {})) m.properties.add(k, v)
  return m
}

const commands = {
  // ports says where what is sent to ports of the service goes: pairs of numbers.
  ports({ forward }) {
    for (const [service, hub] of forward) ports.set(service, hub)
    say({ on: 'done' })
  },
  // open makes a client and opens it. life and margin, in seconds, are of the tokens that the SDK makes.
  async open({ name, transport, connectionString, trust, cert, key, life, margin }) {
    const how = transports[transport]
    const provider = life && SharedAccessKeyAuthenticationProvider.fromConnectionString(connectionString, life, margin)
    const client = provider ? Client.fromAuthenticationProvider(provider, how) : Client.fromConnectionString(connectionString, how)
    clients.set(name, { client, deliveries: new Map() })
    client.on('error', (err) => say({ on: 'error', name, text: why(err) }))
    client.on('disconnect', (err) => say({ on: 'disconnected', name, text: why(err && err.transportObj) }))
    client.on('connect', () => say({ on: 'connected', name }))
    if (provider) provider.on('newTokenAvailable', () => say({ on: 'renewed', name }))
    const polling = transport === 'http' ? { http: { receivePolicy: { interval: 1 } } } : {} // without it the call-back never comes
    await client.setOptions({ ca: trust, ...polling, ...(cert ? { cert, key } : {}) })
    client.open((err) => say({ on: 'opened', name, text: why(err) }))
  },
  send({ name, messages }) {
    for (const m of messages) clients.get(name).client.sendEvent(made(m), (err) => say({ on: 'sent', name, id: text(m.id), text: why(err) }))
  },
  batch({ name, messages }) {
    try {
      clients.get(name).client.sendEventBatch(messages.map(made), (err) => say({ on: 'batch', name, text: why(err) }))
    } catch (err) {
      say({ on: 'batch', name, text: why(err) })
    }
  },
  // listen takes commands, which are settled by settle.
  listen({ name }) {
    const { client, deliveries } = clients.get(name)
    let n = 0
    client.on('message', (m) => {
      deliveries.set(++n, m)
      const properties = Object.fromEntries(m.properties.propertyList.map(({ key, value }) => [key, text(value)]))
      say({ on: 'message', name, delivery: n, payload: text(m.getData()), id: text(m.messageId), correlation: text(m.correlationId), to: text(m.to), contentType: text(m.contentType), properties })
    })
  },
  settle({ name, delivery, outcome }) { // complete, abandon, reject
    const { client, deliveries } = clients.get(name)
    const done = (err) => say({ on: 'settled', name, delivery, outcome, text: why(err) })
    try {
      client[outcome](deliveries.get(delivery), done)
    } catch (err) {
      done(err)
    }
  },
  // Here twin, methods and file upload find their places.
  close({ name }) {
    clients.get(name).client.close((err) => say({ on: 'closed', name, text: why(err) }))
  },
}

process.on('unhandledRejection', (err) => say({ on: 'unhandled', text: why(err) }))
process.on('uncaughtException', (err) => say({ on: 'uncaught', text: why(err) + '\n' + text(err && err.stack) }))

readline.createInterface({ input: process.stdin })
  .on('line', (line) => {
    const command = JSON.parse(line)
    commands[command.do](command)
  })
  .on('close', () => process.exit(0))
