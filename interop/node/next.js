// A client of IoT Hub's MQTT v5 connection profile, on MQTT.js and protobufjs, controlled by a test. It is written from a description of the
// protocol and shares nothing with Hubline. Each line of standard input is a command, each line of standard output an event; both are JSON.
'use strict'
const crypto = require('crypto')
const mqtt = require('mqtt')
const protobuf = require('protobufjs')
const readline = require('readline')

const { root } = protobuf.parse(`
  syntax = "proto3";
  message Birth { bool sessionPresent = 1; uint64 reportedVersion = 10; uint64 desiredVersion = 11; bool pushDesired = 12; bool pushReported = 13; }
  message BirthAck { uint64 desiredVersion = 10; uint64 reportedVersion = 11; }
  message TwinGet { uint32 sections = 1; uint64 ifNotMatchDesired = 2; uint64 ifNotMatchReported = 3; }
  message TwinGetResponse { uint64 desiredVersion = 1; uint64 reportedVersion = 2; optional bytes desired = 3; optional bytes reported = 4; }
  message ReportedPatch { uint64 ifMatch = 1; bytes payload = 2; }
  message ReportedPatchResponse { uint32 result = 1; uint64 version = 2; }
  message Section { uint64 version = 1; bytes payload = 2; }
  message TwinPush { optional Section desired = 1; optional Section reported = 2; }
  message DesiredPatch { uint64 version = 1; bytes payload = 2; }
  message Probe { string name = 1; uint32 responseTimeout = 2; }
  message Ready { bytes readyId = 1; }
  message Rejected { uint32 reason = 1; }
  message ProbeAck { oneof answer { Ready ready = 1; Rejected rejected = 2; } }
  message Timestamp { int64 seconds = 1; int32 nanos = 2; }
  message Exec { bytes readyId = 1; bytes params = 2; Timestamp start = 3; }
  message Result { int32 status = 1; bytes body = 2; }
  message Abandon { bytes readyId = 1; uint32 reason = 2; }`)

const encode = (type, fields) => Buffer.from(root.lookupType(type).encode(fields).finish())
const decode = (type, bytes) => {
  const t = root.lookupType(type)
  return t.toObject(t.decode(bytes), { longs: Number, defaults: true, oneofs: true })
}
const text = (bytes) => (bytes ? Buffer.from(bytes).toString() : '')
const say = (event) => process.stdout.write(JSON.stringify(event) + '\n')
const clients = new Map()

// Birth and twin messages travel with QoS 0, all others with QoS 1.
function publish(c, feature, qos, type, correlation, fields, expiry) {
  const message = type.split('-').map((w) => w[0].toUpperCase() + w.slice(1)).join('')
  const properties = { correlationData: correlation, userProperties: { type: `${type}:1` } }
  if (feature !== 'presence') properties.contentType = 'application/protobuf'
  if (expiry) properties.messageExpiryInterval = expiry
  const name = { get: 'TwinGet' }[type] || message
  c.mqtt.publish(`ih/${c.id}/srv/${feature}`, encode(name, fields), { qos, properties }, (err) => {
    if (err) say({ on: 'refused', name: c.name, text: `${type}: ${err.message}`, code: err.code || 0 })
  })
}

const takers = {
  'birth-ack': (c, correlation, payload) => {
    if (!correlation.equals(c.nonce)) return say({ on: 'foreign ack', name: c.name })
    const m = decode('BirthAck', payload)
    say({ on: 'born', name: c.name, desired: m.desiredVersion, reported: m.reportedVersion })
  },
  'twin-push': (c, correlation, payload) => {
    if (!correlation.equals(c.nonce)) return say({ on: 'foreign push', name: c.name })
    const m = decode('TwinPush', payload)
    for (const part of ['desired', 'reported']) {
      if (m[part]) say({ on: 'pushed', name: c.name, text: part, count: m[part].version, payload: text(m[part].payload) })
    }
  },
  'desired-patch': (c, correlation, payload) => {
    if (!correlation.equals(c.nonce)) return say({ on: 'foreign patch', name: c.name })
    const m = decode('DesiredPatch', payload)
    say({ on: 'desired', name: c.name, count: m.version, payload: text(m.payload) })
  },
  'get-response': (c, correlation, payload) => {
    const m = decode('TwinGetResponse', payload)
    say({ on: 'got', name: c.name, correlation: correlation.toString('hex'), desired: m.desiredVersion, reported: m.reportedVersion,
      properties: { desired: text(m.desired), reported: text(m.reported) } })
  },
  'reported-patch-response': (c, correlation, payload) => {
    const m = decode('ReportedPatchResponse', payload)
    say({ on: 'reported', name: c.name, correlation: correlation.toString('hex'), code: m.result, count: m.version })
  },
  probe: (c, correlation, payload, expiry) => {
    const m = decode('Probe', payload)
    say({ on: 'probed', name: c.name, text: m.name, count: m.responseTimeout, expiry: String(expiry || '') })
    if (m.name !== 'echo') return publish(c, 'methods', 1, 'probe-ack', correlation, { rejected: { reason: 1 } }, expiry)
    const readyId = crypto.randomBytes(16)
    c.ready.set(correlation.toString('hex'), readyId)
    publish(c, 'methods', 1, 'probe-ack', correlation, { ready: { readyId } }, expiry)
  },
  exec: (c, correlation, payload, expiry) => {
    const m = decode('Exec', payload)
    const id = correlation.toString('hex')
    const ready = c.ready.get(id)
    if (!ready || !ready.equals(Buffer.from(m.readyId))) return say({ on: 'stray exec', name: c.name })
    c.ready.delete(id)
    say({ on: 'executed', name: c.name, payload: text(m.params), expiry: String(expiry || '') })
    publish(c, 'methods', 1, 'result', correlation, { status: 200, body: Buffer.from(m.params) }, expiry)
  },
}

function take(c, topic, payload, packet) {
  const p = packet.properties || {}
  const named = p.userProperties && p.userProperties.type
  const type = String(named).split(':')[0]
  const known = { presence: ['birth-ack'], methods: ['probe', 'exec'], twin: ['twin-push', 'desired-patch', 'get-response', 'reported-patch-response'] }
  const feature = topic.split('/')[3]
  if (topic !== `ih/${c.id}/dev/${feature}` || !(known[feature] || []).includes(type) || !p.correlationData || p.correlationData.length !== 16) {
    return say({ on: 'stray', name: c.name, topic, text: String(named) })
  }
  takers[type](c, p.correlationData, payload, p.messageExpiryInterval)
}

const commands = {
  connect({ name, url, id, cert, key, trust, servername, expiry, user, options, versions }) {
    const c = { name, id, nonce: crypto.randomBytes(16), ready: new Map() }
    clients.set(name, c)
    const tls = { ca: trust, servername, cert, key }
    c.mqtt = mqtt.connect(url, {
      protocolVersion: 5, clientId: id, clean: false, keepalive: 60, reconnectPeriod: 0, resubscribe: false, connectTimeout: 30000,
      username: user === undefined ? `correlationId=${c.nonce.toString('hex')}&clientVersion=mqttjs%2F5` : user,
      properties: expiry === undefined ? {} : { sessionExpiryInterval: expiry },
      ...tls, wsOptions: tls, ...options,
    })
    c.mqtt.on('connect', (connack) => {
      say({ on: 'connected', name, session: connack.sessionPresent, code: connack.reasonCode })
      c.mqtt.subscribe(`ih/${id}/dev/#`, { qos: 1 }, (err, granted, packet) => {
        if (err) return say({ on: 'refused', name, text: `subscribe: ${err.message}`, code: err.code || 0 })
        say({ on: 'subscribed', name, code: packet.granted[0] })
        publish(c, 'presence', 0, 'birth', c.nonce, { sessionPresent: connack.sessionPresent, ...versions })
      })
    })
    c.mqtt.on('error', (err) => say({ on: 'error', name, code: typeof err.code === 'number' ? err.code : 0, text: String(err.message || err) }))
    c.mqtt.on('disconnect', (packet) => say({ on: 'disconnected', name, code: packet.reasonCode,
      text: String((packet.properties && packet.properties.serverReference) || '') }))
    c.mqtt.on('close', () => say({ on: 'closed', name }))
    c.mqtt.on('message', (topic, payload, packet) => take(c, topic, payload, packet))
  },
  // send publishes telemetry, or on a topic of the program's own.
  send({ name, topic, payload, properties, id, contentType }) {
    const c = clients.get(name)
    const own = topic === undefined
    const userProperties = { ...(own ? { type: 'telemetry:1', '$.mid': id } : {}), ...properties }
    const all = {} // MQTT.js sends nothing at all if a property is empty
    if (contentType) all.contentType = contentType
    if (Object.keys(userProperties).length) all.userProperties = userProperties
    c.mqtt.publish(own ? `ih/${c.id}/srv/telemetry` : topic, payload, { qos: 1, properties: all }, (err, packet) =>
      say({ on: 'published', name, payload, code: err ? err.code || -1 : (packet && packet.reasonCode) || 0, text: err ? String(err.message) : '' }))
  },
  get({ name, sections, desired, reported }) {
    const c = clients.get(name)
    publish(c, 'twin', 0, 'get', crypto.randomBytes(16), { sections, ifNotMatchDesired: desired || 0, ifNotMatchReported: reported || 0 })
  },
  report({ name, ifMatch, payload }) {
    const c = clients.get(name)
    publish(c, 'twin', 0, 'reported-patch', crypto.randomBytes(16), { ifMatch: ifMatch || 0, payload: Buffer.from(payload) })
  },
  subscribe({ name, topic }) {
    clients.get(name).mqtt.subscribe(topic, { qos: 1 }, (err, granted, packet) =>
      say({ on: 'asked', name, code: packet ? packet.granted[0] : -1, text: err ? String(err.message) : '' }))
  },
  end({ name }) { // with DISCONNECT
    clients.get(name).mqtt.end(false, () => say({ on: 'ended', name }))
  },
  destroy({ name }) { // without
    clients.get(name).mqtt.stream.destroy()
  },
}

readline.createInterface({ input: process.stdin })
  .on('line', (line) => {
    const command = JSON.parse(line)
    commands[command.do](command)
  })
  .on('close', () => process.exit(0))
