// The official device SDK for Node.js controlled by a test, over any of its transports. Each line of standard input is a command, each line of
// standard output an event; both are JSON. Only the SDK itself retries.
'use strict'
const readline = require('readline')
const { Readable } = require('stream')
const { Client, Message, ModuleClient, SharedAccessKeyAuthenticationProvider } = require('azure-iot-device')
const { Amqp, AmqpWs } = require('azure-iot-device-amqp')
const { Http } = require('azure-iot-device-http')
const { Mqtt, MqttWs } = require('azure-iot-device-mqtt')
const { ended, forward, say, text, why } = require('./common')

const transports = { amqp: Amqp, 'amqp-ws': AmqpWs, mqtt: Mqtt, 'mqtt-ws': MqttWs, http: Http }
const clients = new Map() // by name: SDK's client, its deliveries by number, its twin

// provisioning returns the transport of the provisioning client, which takes a while to load.
function provisioning(transport) {
  const { Amqp, AmqpWs } = require('azure-iot-provisioning-device-amqp')
  const { Http } = require('azure-iot-provisioning-device-http')
  const { Mqtt, MqttWs } = require('azure-iot-provisioning-device-mqtt')
  return { amqp: Amqp, 'amqp-ws': AmqpWs, mqtt: Mqtt, 'mqtt-ws': MqttWs, http: Http }[transport]
}

function made({ payload, id, correlation, contentType, contentEncoding, user, to, expiry, security, component, properties }) {
  const m = new Message(payload)
  if (id) m.messageId = id
  if (correlation) m.correlationId = correlation
  if (contentType) m.contentType = contentType
  if (contentEncoding) m.contentEncoding = contentEncoding
  if (user) m.userId = user
  if (to) m.to = to
  if (expiry) m.expiryTimeUtc = typeof expiry === 'number' ? expiry : new Date(expiry)
  if (security) m.setAsSecurityMessage()
  if (component) m.properties.add('dt-subject', component) // of which each transport makes what the service calls it
  for (const [k, v] of Object.entries(properties || {})) m.properties.add(k, v)
  return m
}

// shown returns the fields of a received message. Over AMQP the SDK leaves some of them to applications that know AMQP.
function shown(m) {
  const { message_annotations: annotations, user_id: user } = m.transportObj || {}
  const expiry = m.expiryTimeUtc === undefined ? '' : new Date(m.expiryTimeUtc).toISOString()
  const texts = (all) => Object.fromEntries(all.map(([key, value]) => [key, value instanceof Date ? value.toISOString() : text(value)]))
  return {
    payload: text(m.getData()), id: text(m.messageId), correlation: text(m.correlationId), to: text(m.to), user: text(m.userId || user), expiry,
    contentType: text(m.contentType), contentEncoding: text(m.contentEncoding), annotations: texts(Object.entries(annotations || {})),
    properties: texts(m.properties.propertyList.map(({ key, value }) => [key, value])),
  }
}

// keep remembers a client and reports its events.
function keep(name, client) {
  clients.set(name, { client, deliveries: new Map() })
  client.on('error', (err) => say({ on: 'error', name, text: why(err) }))
  client.on('disconnect', (err) => say({ on: 'disconnected', name, text: why(err && err.transportObj) }))
  client.on('connect', () => say({ on: 'connected', name }))
}

// content returns the content of files.
function content(size) {
  const all = Buffer.alloc(size)
  for (let i = 0; i < size; i++) all[i] = i ^ (i >> 8) ^ (i >> 16)
  return all
}

function* slices(all, size) {
  for (let at = 0; at < all.length; at += size) yield all.subarray(at, at + size)
}

const commands = {
  // ports sets the redirection of the service's ports, see common.js.
  ports({ forward: pairs }) {
    forward(pairs)
    say({ on: 'done' })
  },
  // resets tells when the connections that are open now have ended.
  resets() {
    ended().then(() => say({ on: 'gone' }))
    say({ on: 'watching' })
  },
  // register asks a provisioning service for the device's hub, with a key or with a certificate.
  register({ name, transport, host, scope, id, key, cert, certKey, payload }) {
    const { ProvisioningDeviceClient } = require('azure-iot-provisioning-device')
    const done = (err, state) => say({ on: 'registered', name, text: why(err), payload: JSON.stringify(state) })
    try {
      const security = key ? new (require('azure-iot-security-symmetric-key').SymmetricKeySecurityClient)(id, key)
        : new (require('azure-iot-security-x509').X509Security)(id, { cert, key: certKey })
      const client = ProvisioningDeviceClient.create(host, scope, new (provisioning(transport))(), security)
      if (payload) client.setProvisioningPayload(payload)
      client.register(done)
    } catch (err) {
      done(err)
    }
  },
  // open makes a client and opens it. life and margin, in seconds, are for the SDK's tokens.
  async open({ name, transport, connectionString, trust, cert, key, life, margin }) {
    const how = transports[transport]
    const Kind = connectionString.includes(';ModuleId=') ? ModuleClient : Client
    const provider = life && SharedAccessKeyAuthenticationProvider.fromConnectionString(connectionString, life, margin)
    const client = provider ? Kind.fromAuthenticationProvider(provider, how) : Kind.fromConnectionString(connectionString, how)
    keep(name, client)
    if (provider) provider.on('newTokenAvailable', () => say({ on: 'renewed', name }))
    const polling = transport === 'http' ? { http: { receivePolicy: { interval: 1 } } } : {} // without it the call-back never comes
    await client.setOptions({ ca: trust, ...polling, ...(cert ? { cert, key } : {}) })
    client.open((err) => say({ on: 'opened', name, text: why(err) }))
  },
  // module makes the client of the module whose environment this process has, and opens it.
  async module({ name, transport }) {
    try {
      const client = await ModuleClient.fromEnvironment(transports[transport])
      keep(name, client)
      await client.open()
      say({ on: 'opened', name, text: '' })
    } catch (err) {
      say({ on: 'opened', name, text: why(err) })
    }
  },
  // inputs receives the messages of a module's inputs, and completes them.
  inputs({ name }) {
    const { client } = clients.get(name)
    client.on('inputMessage', (input, m) => {
      say({ on: 'input', name, input, ...shown(m) })
      client.complete(m, (err) => say({ on: 'completed', name, id: text(m.messageId), text: why(err) }))
    })
  },
  // output sends messages to an output of a module.
  output({ name, output, messages }) {
    for (const m of messages) clients.get(name).client.sendOutputEvent(output, made(m), (err) => say({ on: 'sent', name, id: text(m.id), text: why(err) }))
  },
  // invoke calls a method of a module or device through the gateway.
  async invoke({ name, device, module, params }) {
    try {
      const { client } = clients.get(name)
      const { status, payload } = await (module ? client.invokeMethod(device, module, params) : client.invokeMethod(device, params))
      say({ on: 'invoked', name, code: status, payload: JSON.stringify(payload), text: '' })
    } catch (err) {
      say({ on: 'invoked', name, text: why(err) })
    }
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
  // listen receives cloud-to-device messages; settle settles them.
  listen({ name }) {
    const { client, deliveries } = clients.get(name)
    let n = 0
    client.on('message', (m) => {
      deliveries.set(++n, m)
      say({ on: 'message', name, delivery: n, ...shown(m) })
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
  // twin reads the twin. The SDK then reports all desired properties as changes.
  async twin({ name }) {
    const state = clients.get(name)
    try {
      const twin = await state.client.getTwin()
      if (state.twin !== twin) twin.on('error', (err) => say({ on: 'error', name, text: why(err) }))
      state.twin = twin
      say({ on: 'twin', name, payload: JSON.stringify(twin.properties), text: '' })
    } catch (err) {
      say({ on: 'twin', name, text: why(err) })
    }
  },
  // watch reports further changes of desired properties.
  watch({ name }) {
    clients.get(name).twin.on('properties.desired', (patch) => say({ on: 'desired', name, payload: JSON.stringify(patch) }))
  },
  // report changes reported properties.
  report({ name, patch }) {
    clients.get(name).twin.properties.reported.update(patch, (err) => say({ on: 'reported', name, text: why(err) }))
  },
  // method handles a method: it answers with status and the received payload, if any.
  method({ name, method, status }) {
    const { client } = clients.get(name)
    const register = client.onMethod ? 'onMethod' : 'onDeviceMethod' // of a module and of a device
    client[register](method, (request, response) => {
      say({ on: 'called', name, id: request.methodName, payload: JSON.stringify(request.payload), correlation: text(request.requestId) })
      const args = request.payload === undefined || request.payload === null ? [status] : [status, { given: request.payload }]
      response.send(...args, (err) => say({ on: 'answered', name, text: why(err) }))
    })
  },
  // upload uploads a file of the given size: see content.
  async upload({ name, blob, size }) {
    const state = clients.get(name)
    try {
      await state.client.uploadToBlob(blob, Readable.from(slices(content(size), 50000)), size)
      say({ on: 'uploaded', name, id: blob, text: '' })
    } catch (err) {
      say({ on: 'uploaded', name, id: blob, text: why(err) + (err.innerError ? ': ' + why(err.innerError) : '') })
    }
  },
  // uploadByHand uploads with the application's own store client.
  async uploadByHand({ name, blob, size }) {
    const { client } = clients.get(name)
    const { BlockBlobClient } = require('@azure/storage-blob') // that of azure-iot-device; it takes a while to load
    try {
      const { correlationId, hostName, containerName, blobName, sasToken } = await client.getBlobSharedAccessSignature(blob)
      const done = await new BlockBlobClient(`https://${hostName}/${containerName}/${blobName}${sasToken}`).uploadData(content(size))
      await client.notifyBlobUploadStatus(correlationId, true, done._response.status, 'by hand')
      say({ on: 'uploaded', name, id: blob, text: '' })
    } catch (err) {
      say({ on: 'uploaded', name, id: blob, text: why(err) })
    }
  },
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
