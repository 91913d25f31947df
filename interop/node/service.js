// The official SDK for back ends controlled by a test. Each line of standard input is a command, each line of standard output an event; both are
// JSON. Only the SDK itself retries.
'use strict'
const readline = require('readline')
const { Client, Registry } = require('azure-iothub')
const { Message } = require('azure-iot-common') // that of azure-iot-device
const { forward, say, why } = require('./common')

const objects = new Map() // by name: registries, clients, queries

// answer reports the result of a call: the body of the answer, or the error.
async function answer(name, call) {
  try {
    const done = (await call()) || {}
    const body = done.responseBody !== undefined ? done.responseBody : done.result
    say({ on: 'answer', name, payload: JSON.stringify(body), text: '' })
  } catch (err) {
    const code = err.response && err.response.headers && err.response.headers['iothub-errorcode']
    say({ on: 'answer', name, text: why(err) + (code ? ` (${code})` : '') })
  }
}

const commands = {
  // open makes the objects "registry" and "client" and connects them to the hub.
  open({ connectionString, forward: pairs }) {
    forward(pairs)
    objects.set('registry', Registry.fromConnectionString(connectionString))
    objects.set('client', Client.fromConnectionString(connectionString))
    say({ on: 'done' })
  },
  // call calls a method of an object.
  call({ name, method, args }) {
    answer(name, () => objects.get(name)[method](...args))
  },
  // query begins a query with paged results.
  query({ name, query, page }) {
    objects.set(name, objects.get('registry').createQuery(query, page))
    say({ on: 'done' })
  },
  // send sends a cloud-to-device message to a device.
  send({ device, payload }) {
    answer('client', () => objects.get('client').send(device, new Message(payload)))
  },
}

process.on('unhandledRejection', (err) => say({ on: 'unhandled', text: why(err) }))

readline.createInterface({ input: process.stdin })
  .on('line', (line) => {
    const command = JSON.parse(line)
    commands[command.do](command)
  })
  .on('close', () => process.exit(0))
