// MQTT.js controlled by a test. Each line of standard input is a command, each line of standard output an event; both are JSON. It does not
// reconnect.
'use strict'
const mqtt = require('mqtt')
const readline = require('readline')

const clients = new Map()
const say = (event) => process.stdout.write(JSON.stringify(event) + '\n')

const commands = {
  connect({ name, url, options, trust, servername }) {
    const tls = trust ? { ca: trust, servername } : {}
    const client = mqtt.connect(url, { ...options, ...tls, wsOptions: tls, reconnectPeriod: 0, resubscribe: false })
    clients.set(name, client)
    client.on('connect', (connack) => say({ on: 'connected', name, session: connack.sessionPresent }))
    client.on('error', (err) => say({ on: 'error', name, code: typeof err.code === 'number' ? err.code : 0, text: String(err.message || err) }))
    client.on('close', () => say({ on: 'closed', name }))
    client.on('message', (topic, payload, packet) =>
      say({ on: 'message', name, topic, payload: payload.toString(), qos: packet.qos, dup: packet.dup, retain: packet.retain }))
  },
  publish({ name, topic, payload, qos, retain }) {
    clients.get(name).publish(topic, payload, { qos, retain }, (err) => say({ on: 'published', name, payload, text: err ? String(err.message) : '' }))
  },
  subscribe({ name, topic, qos }) {
    clients.get(name).subscribe(topic, { qos }, (err, granted) =>
      say({ on: 'subscribed', name, code: granted && granted.length ? granted[0].qos : -1, text: err ? String(err.message) : '' }))
  },
  unsubscribe({ name, topic }) {
    clients.get(name).unsubscribe(topic, (err) => say({ on: 'unsubscribed', name, text: err ? String(err.message) : '' }))
  },
  end({ name }) { // with DISCONNECT
    clients.get(name).end(false, () => say({ on: 'ended', name }))
  },
  destroy({ name }) { // without
    clients.get(name).stream.destroy()
  },
}

readline.createInterface({ input: process.stdin })
  .on('line', (line) => {
    const command = JSON.parse(line)
    commands[command.do](command)
  })
  .on('close', () => process.exit(0))
