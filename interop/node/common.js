// What the scripts around the official SDKs share.
'use strict'
const net = require('net')

// The ports of the service are fixed in the SDKs. In their place come those of the hub under test, by a name look-up and a port forwarding of this process; names in TLS and in
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

module.exports = {
  // forward says where what is sent to ports of the service goes: pairs of numbers.
  forward(pairs) {
    for (const [service, hub] of pairs) ports.set(service, hub)
  },
  say: (event) => process.stdout.write(JSON.stringify(event) + '\n'),
  text: (v) => (v === undefined || v === null ? '' : String(v)),
  why: (err) => (err ? `${err.name}: ${err.message}` : ''),
}
