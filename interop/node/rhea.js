// The AMQP 1.0 library rhea as a client controlled by a test. Each line of standard input is a command, each line of standard output an event; both
// are JSON. It does not retry, and settles only on a command or if a receiver was opened with auto.
'use strict'
const readline = require('readline')
const rhea = require('rhea')
const WebSocket = require('ws')

const clients = new Map() // by name: container, connection, links by name, deliveries by number
const say = (event) => process.stdout.write(JSON.stringify(event) + '\n')
const text = (v) => (v === undefined || v === null ? '' : Buffer.isBuffer(v) ? v.toString(v.length === 16 ? 'hex' : 'utf8') : String(v))
const plain = (map) => Object.fromEntries(Object.entries(map || {}).map(([k, v]) => [k, v instanceof Date ? v.toISOString() : text(v)]))

// told converts a message for an event.
function told(m) {
  const body = m.body && m.body.content !== undefined ? m.body.content : m.body
  return {
    payload: text(body), id: text(m.message_id), correlation: text(m.correlation_id), contentType: text(m.content_type), contentEncoding: text(m.content_encoding),
    to: text(m.to), properties: plain(m.application_properties), annotations: plain(m.message_annotations), count: m.delivery_count || 0, durable: !!m.durable,
  }
}

// made converts a command to a message. The body becomes a data section.
function made({ payload, id, correlation, contentType, contentEncoding, component, properties, durable }) {
  const m = { body: rhea.message.data_section(Buffer.from(payload)) }
  if (id) m.message_id = id
  if (correlation) m.correlation_id = correlation
  if (contentType) m.content_type = contentType
  if (contentEncoding) m.content_encoding = contentEncoding
  if (component) m.message_annotations = { 'dt-subject': component }
  if (properties) m.application_properties = properties
  if (durable) m.durable = true
  return m
}

const outcomes = {
  accepted: (d) => d.accept(),
  rejected: (d, error) => d.reject(error),
  released: (d) => d.release(),
  modified: (d, error, undeliverable) => d.modified({ delivery_failed: true, undeliverable_here: !!undeliverable }),
}

const commands = {
  // connect uses TLS if there is a certificate to trust, and WebSocket if there is a url. Without a user it uses no SASL, unless anonymous is set.
  connect({ name, port, url, trust, servername, username, password, anonymous }) {
    const container = rhea.create_container()
    const options = { host: '127.0.0.1', port, hostname: servername, reconnect: false, container_id: name, idle_time_out: 60000 }
    if (username) Object.assign(options, { username, password })
    else if (anonymous) options.username = 'anonymous'
    if (url) options.connection_details = container.websocket_connect(WebSocket)(url, 'AMQPWSB10', { ca: trust, servername })
    else if (trust) Object.assign(options, { transport: 'tls', ca: trust, servername })
    const client = { links: new Map(), deliveries: new Map(), sent: new Map() }
    clients.set(name, client)
    container.on('connection_open', () => say({ on: 'connected', name }))
    container.on('connection_error', (c) => {
      const error = c.error || c.connection.error
      say({ on: 'refused', name, condition: text(error.condition), text: text(error.description) })
    })
    container.on('connection_close', () => {})
    container.on('disconnected', (c) => say({ on: 'closed', name, text: text(c.error && c.error.message) }))
    container.on('error', (e) => say({ on: 'error', name, condition: text(e.condition), text: text(e.message || e.description) }))
    container.on('protocol_error', (e) => say({ on: 'protocol error', name, text: String(e) }))
    container.on('session_error', (c) => say({ on: 'session error', name, condition: text(c.session.error.condition), text: text(c.session.error.description) }))
    container.on('session_close', () => {})
    for (const kind of ['receiver', 'sender']) {
      container.on(kind + '_open', (c) => {
        const terminus = kind === 'receiver' ? c.receiver.source : c.sender.target
        if (terminus && terminus.address) say({ on: 'attached', name, link: c[kind].name }) // without one the refusal follows
      })
      container.on(kind + '_error', (c) => say({ on: 'detached', name, link: c[kind].name, condition: text(c[kind].error.condition), text: text(c[kind].error.description) }))
      container.on(kind + '_close', (c) => c[kind].error || say({ on: 'detached', name, link: c[kind].name }))
    }
    let n = 0
    container.on('message', (c) => {
      if (c.receiver === client.answers) {
        const p = c.message.application_properties
        c.delivery.accept()
        return say({ on: 'token', name, id: text(c.message.correlation_id), code: p['status-code'], text: p['status-description'] })
      }
      client.deliveries.set(++n, c.delivery)
      say({ on: 'message', name, link: c.receiver.name, delivery: n, ...told(c.message) })
    })
    for (const outcome of Object.keys(outcomes)) {
      container.on(outcome, (c) => {
        if (c.sender === client.cbs) return
        const id = client.sent.get(c.delivery)
        const error = outcome === 'rejected' && c.delivery.remote_state.error
        say({ on: 'settled', name, outcome, id: text(id), condition: error ? text(error.condition) : '', text: error ? text(error.description) : '' })
      })
    }
    client.connection = container.connect(options)
    client.connection.on('sendable', (c) => flush(client, c.sender))
  },
  // token puts a token; the first one opens the links.
  token({ name, id, audience, token }) {
    const client = clients.get(name)
    if (!client.cbs) {
      client.answers = client.connection.open_receiver({ name: 'answers to tokens', source: '$cbs', credit_window: 10, autoaccept: false })
      client.cbs = client.connection.open_sender({ name: 'tokens', target: '$cbs' })
      client.cbs.waiting = []
    }
    client.cbs.waiting.push({
      message_id: id, reply_to: 'cbs', body: token,
      application_properties: { operation: 'put-token', type: 'servicebus.windows.net:sastoken', name: audience },
    })
    flush(client, client.cbs)
  },
  sender({ name, link, address, settled }) {
    const client = clients.get(name)
    const sender = client.connection.open_sender({ name: link, target: address, snd_settle_mode: settled ? 1 : undefined, treat_modified_as_released: false })
    sender.waiting = []
    client.links.set(link, sender)
  },
  receiver({ name, link, address, credit, auto, second }) {
    clients.get(name).links.set(link, clients.get(name).connection.open_receiver({
      name: link, source: address, credit_window: credit, autoaccept: !!auto, rcv_settle_mode: second ? 1 : undefined,
    }))
  },
  send({ name, link, messages }) {
    const client = clients.get(name)
    const sender = client.links.get(link)
    sender.waiting.push(...messages.map(made))
    flush(client, sender)
  },
  settle({ name, delivery, outcome, condition, text, undeliverable }) {
    const { deliveries } = clients.get(name)
    outcomes[outcome](deliveries.get(delivery), condition && { condition, description: text }, undeliverable)
    deliveries.delete(delivery)
  },
  detach({ name, link }) {
    clients.get(name).links.get(link).close()
  },
  end({ name }) { // with close
    clients.get(name).connection.close()
  },
  destroy({ name }) { // without
    clients.get(name).connection.socket.destroy()
  },
}

// flush sends as much as the link's credit allows.
function flush(client, sender) {
  while (sender.waiting && sender.waiting.length && sender.sendable()) {
    const m = sender.waiting.shift()
    client.sent.set(sender.send(m), m.message_id)
  }
}

readline.createInterface({ input: process.stdin })
  .on('line', (line) => {
    const command = JSON.parse(line)
    commands[command.do](command)
  })
  .on('close', () => process.exit(0))
