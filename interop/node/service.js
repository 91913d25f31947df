// The official SDK for back ends controlled by a test. Each line of standard input is a command, each line of standard output an event; both are
// JSON. Only the SDK itself retries.
'use strict'
const readline = require('readline')
const { Client, DigitalTwinClient, IoTHubTokenCredentials, JobClient, Registry, Twin } = require('azure-iothub')
const { Query } = require('azure-iothub/dist/query') // the SDK documents the class, but does not export it
const { Message } = require('azure-iot-common') // that of azure-iot-device
const { forward, say, why } = require('./common')

const objects = new Map() // by name: registries, clients, provisioning services, queries
const classes = { Client, DigitalTwinClient, JobClient, Query, Registry, Twin }

// bodyOf returns the body of an answer. The clients of the SDK return it in different members.
function bodyOf(done) {
  for (const name of ['responseBody', 'result', 'jobStatus']) if (done[name] !== undefined) return done[name]
  return done._response ? { ...done, _response: undefined } : done
}

// answer reports the result of a call: the body of the answer, or the error.
async function answer(name, call) {
  try {
    const done = (await call()) || {}
    say({ on: 'answer', name, payload: JSON.stringify(bodyOf(done)), text: '' })
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
    objects.set('jobs', JobClient.fromConnectionString(connectionString))
    objects.set('twins', new DigitalTwinClient(new IoTHubTokenCredentials(connectionString)))
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
  call({ name, method, args: plain }) {
    const object = objects.get(name)
    const args = plain.map((a) => (a && a.date ? new Date(a.date) : a)) // jobs take objects of the class Date
    answer(name, () => (method === 'runBulkEnrollmentOperation'
      ? new Promise((resolve, reject) => object[method](...args, (err, result) => (err ? reject(err) : resolve({ result }))))
      : object[method](...args)))
  },
  // take calls a method of an object, and keeps its result as another object.
  take({ name, from, method, args }) {
    answer(name, async () => {
      const done = await objects.get(from)[method](...args)
      objects.set(name, done.responseBody || done.result || done)
      return done
    })
  },
  // sign makes an object of a class from a shared access signature, which the registry has made.
  sign({ name, type }) {
    const { sharedAccessSignature } = objects.get('registry')._restApiClient._config
    const text = typeof sharedAccessSignature === 'string' ? sharedAccessSignature : sharedAccessSignature.toString()
    objects.set(name, classes[type].fromSharedAccessSignature(text))
    say({ on: 'done' })
  },
  // methods lists the public methods of a class, those of its objects and its own.
  methods({ name }) {
    const own = Object.getOwnPropertyNames
    const type = classes[name]
    const all = [...own(type.prototype), ...own(type).filter((n) => typeof type[n] === 'function')]
    say({ on: 'answer', name, payload: JSON.stringify(all.filter((n) => n !== 'constructor' && !n.startsWith('_'))), text: '' })
  },
  // page reads the next page of a query, and tells whether there are more. Without a callback it would be the first page again.
  page({ name }) {
    const query = objects.get(name)
    query.next((err, page) => say({ on: 'page', name, payload: JSON.stringify(page), text: why(err), count: query.hasMoreResults ? 1 : 0 }))
  },
  // make calls a method of an object, "provisioning" unless it is named, that returns an object, such as a query.
  make({ name, from, method, args }) {
    objects.set(name, objects.get(from || 'provisioning')[method](...args))
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
