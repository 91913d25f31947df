// The official SDK for back ends controlled by a test. Each line of standard input is a command, each line of standard output an event; both are
// JSON. Only the SDK itself retries.
'use strict'
const readline = require('readline')
const { Client, Registry } = require('azure-iothub')
const { Message } = require('azure-iot-common') // that of azure-iot-device
const { forward, say, why } = require('./common')

const objects = new Map() // by name: registries, clients, provisioning services, queries

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
  // openProvisioning makes the object "provisioning" and connects it to the provisioning service.
  openProvisioning({ connectionString, forward: pairs }) {
    const { ProvisioningServiceClient } = require('azure-iot-provisioning-service')
    forward(pairs)
    objects.set('provisioning', ProvisioningServiceClient.fromConnectionString(connectionString))
    say({ on: 'done' })
  },
  // call calls a method of an object. Bulk operations answer only to a callback.
  call({ name, method, args }) {
    const object = objects.get(name)
    answer(name, () => (method === 'runBulkEnrollmentOperation'
      ? new Promise((resolve, reject) => object[method](...args, (err, result) => (err ? reject(err) : resolve({ result }))))
      : object[method](...args)))
  },
  // page reads the next page of a query, and tells whether there are more. Without a callback it would be the first page again.
  page({ name }) {
    const query = objects.get(name)
    query.next((err, page) => say({ on: 'page', name, payload: JSON.stringify(page), text: why(err), count: query.hasMoreResults ? 1 : 0 }))
  },
  // make calls a method of the object "provisioning" that returns an object, such as a query.
  make({ name, method, args }) {
    objects.set(name, objects.get('provisioning')[method](...args))
    say({ on: 'done' })
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
