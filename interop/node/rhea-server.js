// A broker of AMQP 1.0 with the library rhea, controlled by a test. Each line of standard input is a command, each line of standard output an event;
// both are JSON. Telemetry goes to the address "telemetry", cloud-to-device messages come from the address "commands".
'use strict'
const https = require('https')
const readline = require('readline')
const rhea = require('rhea')
const { WebSocketServer } = require('ws')

const say = (event) => process.stdout.write(JSON.stringify(event) + '\n')
const text = (v) => (v === undefined || v === null ? '' : Buffer.isBuffer(v) ? v.toString('utf8') : String(v))
const plain = (map) => Object.fromEntries(Object.entries(map || {}).map(([k, v]) => [k, text(v)]))

let credit = 100 // that a link for telemetry has when nothing is in flight
let plan = [] // of what to do with the next messages; accept after its end
let users = null // passwords by name; null lets in who is anonymous
let number = 0 // of the latest connection
let commandNumber = 0
const receivers = new Set() // for telemetry, open
const queue = [] // commands that wait: {n, message}
const sent = new Map() // by delivery: a command that was not settled
const senders = new Set() // for commands, open

// alone sends an answer in its own frame: the library would send the first of two pending outcomes for both.
const alone = (answer) => setImmediate(answer)

// Actions on a message. The argument is the text after the first colon in the plan.
const actions = {
  accept: ({ delivery }) => delivery.accept(),
  later: ({ delivery }) => setTimeout(() => delivery.accept(), 20), // so that others are answered before it
  release: ({ delivery }) => alone(() => delivery.release()),
  modify: ({ delivery }) => alone(() => delivery.modified({ delivery_failed: true, undeliverable_here: false })),
  undeliverable: ({ delivery }) => alone(() => delivery.modified({ delivery_failed: true, undeliverable_here: true })),
  reject: ({ delivery }, condition) => alone(() => delivery.reject(condition ? { condition, description: 'as planned' } : undefined)),
  ignore: () => {},
  detach: ({ receiver }, condition) => {
    receivers.delete(receiver)
    receiver.close(condition && { condition, description: 'as planned' })
  },
  end: ({ session }, condition) => session.close(condition && { condition, description: 'as planned' }),
  close: ({ connection }, condition) => connection.close(condition && { condition, description: 'as planned' }),
  drop: ({ connection }) => below(connection).destroy(),
  reset: ({ connection }) => below(connection).resetAndDestroy(),
}

const below = (connection) => (connection.options.web ? connection.options.web._socket : connection.socket)

const container = rhea.create_container({ id: 'rhea-server' })
const options = { receiver_options: { credit_window: 0, autoaccept: false }, sender_options: { treat_modified_as_released: false } }

container.on('connection_open', ({ connection }) => {
  connection.number = ++number
  say({ on: 'connected', connection: connection.number, text: text(connection.hostname) })
})
container.on('receiver_open', ({ receiver }) => {
  receiver.set_target(receiver.target)
  if (receiver.target.address !== 'telemetry') return receiver.close({ condition: 'amqp:not-found', description: receiver.target.address })
  receivers.add(receiver)
  receiver.add_credit(credit)
  say({ on: 'attached', link: 'telemetry' })
})
container.on('message', (context) => {
  const { message, delivery, receiver, connection } = context
  const [action, ...rest] = (plan.length ? plan.shift() : 'accept').split(':')
  say({
    on: 'arrived', connection: connection.number, action, payload: text(message.body && message.body.content), id: text(message.message_id),
    correlation: text(message.correlation_id), contentType: text(message.content_type), contentEncoding: text(message.content_encoding),
    properties: plain(message.application_properties), durable: !!message.durable,
  })
  actions[action](context, rest.join(':'))
  if (credit > 0 && receivers.has(receiver)) receiver.add_credit(1)
})
container.on('sender_open', ({ sender }) => {
  sender.set_source(sender.source)
  if (sender.source.address !== 'commands') return sender.close({ condition: 'amqp:not-found', description: sender.source.address })
  senders.add(sender)
  say({ on: 'attached', link: 'commands' })
})
container.on('sendable', () => dispatch())
const settled = (outcome) => ({ delivery }) => {
  const command = sent.get(delivery)
  if (!command) return
  sent.delete(delivery)
  delivery.update(true)
  const error = outcome === 'rejected' && delivery.remote_state.error
  say({ on: 'settled', delivery: command.n, outcome, payload: command.payload, condition: error ? text(error.condition) : '' })
  if (outcome === 'released' || outcome === 'modified') {
    command.message.delivery_count = (command.message.delivery_count || 0) + 1
    queue.unshift(command)
    dispatch()
  }
}
for (const outcome of ['accepted', 'rejected', 'released', 'modified']) container.on(outcome, settled(outcome))

// gone requeues a link's unsettled messages.
function gone(sender) {
  senders.delete(sender)
  for (const [delivery, command] of [...sent].reverse()) {
    if (delivery.link === sender) {
      sent.delete(delivery)
      command.message.delivery_count = (command.message.delivery_count || 0) + 1
      queue.unshift(command)
    }
  }
  dispatch()
}
for (const event of ['sender_close', 'sender_error']) container.on(event, ({ sender }) => gone(sender))
for (const event of ['receiver_close', 'receiver_error']) container.on(event, ({ receiver }) => receivers.delete(receiver))
// over ends all links that match.
function over(which) {
  for (const link of [...receivers]) if (which(link)) receivers.delete(link)
  for (const link of [...senders]) if (which(link)) gone(link)
}
for (const event of ['session_close', 'session_error']) container.on(event, ({ session }) => over((link) => link.session === session))
for (const event of ['connection_close', 'connection_error', 'disconnected']) {
  container.on(event, ({ connection }) => {
    over((link) => link.connection === connection)
    if (event === 'disconnected' && connection.number) say({ on: 'closed', connection: connection.number })
  })
}
container.on('protocol_error', (e) => say({ on: 'protocol error', text: String(e) }))
container.on('error', (e) => say({ on: 'error', text: String(e.message || e) }))

function dispatch() {
  for (const sender of senders) {
    while (queue.length && sender.sendable()) {
      const command = queue.shift()
      sent.set(sender.send(command.message), command)
    }
  }
}

const commands = {
  serve({ cert, key, web }) {
    const ready = (server) => server.listen(0, '127.0.0.1', () => say({ on: 'listening', port: server.address().port }))
    if (web) {
      const server = https.createServer({ cert, key })
      const sockets = new WebSocketServer({ server, path: web, handleProtocols: (offered) => (offered.has('amqp') ? 'amqp' : false) })
      sockets.on('connection', (ws) => container.websocket_accept(ws, { ...options, web: ws }))
      server.on('tlsClientError', () => {})
      return ready(server)
    }
    const server = container.listen({ transport: 'tls', cert, key, port: 0, host: '127.0.0.1', ...options })
    server.on('tlsClientError', () => {})
    server.on('listening', () => say({ on: 'listening', port: server.address().port }))
  },
  // users sets the passwords; without any there is no authentication.
  users(command) {
    users = command.users
    container.sasl_server_mechanisms = rhea.create_container().sasl_server_mechanisms
    if (users) container.sasl_server_mechanisms.enable_plain((user, password) => users[user] === password)
    else container.sasl_server_mechanisms.enable_anonymous()
    say({ on: 'done' })
  },
  plan(command) {
    plan = command.plan
    say({ on: 'done' })
  },
  // credit sets the credit of links. None stops open links when their credit is used up.
  credit(command) {
    const before = credit
    credit = command.credit
    if (before === 0) for (const r of receivers) r.add_credit(credit)
    say({ on: 'done' })
  },
  command({ message }) {
    const { payload, ...rest } = message
    queue.push({ n: ++commandNumber, payload, message: { ...rest, body: rhea.message.data_section(Buffer.from(payload)) } })
    dispatch()
  },
  // strike ends the links for cloud-to-device messages, their session or connection, as the action says.
  strike({ action, condition }) {
    for (const sender of [...senders]) {
      gone(sender)
      if (action === 'detach') sender.close({ condition, description: 'as planned' })
      else actions[action]({ session: sender.session, connection: sender.connection }, condition)
    }
    say({ on: 'done' })
  },
}

readline.createInterface({ input: process.stdin })
  .on('line', (line) => {
    const command = JSON.parse(line)
    commands[command.do](command)
  })
  .on('close', () => process.exit(0))
