// Helpers of the scripts around the official SDKs.
'use strict'
const net = require('net')

// The service's ports are fixed in the SDKs. This process redirects them to the hub under test, by name look-up and port forwarding; names in TLS and
// in signatures stay unchanged.
const ports = new Map() // by "host:port" and by "port"
const open = new Set() // connections with TLS
const connect = net.Socket.prototype.connect
net.Socket.prototype.connect = function (...args) {
  const options = Array.isArray(args[0]) ? args[0][0] : args[0]
  const port = options && (ports.get(`${options.host}:${options.port}`) || ports.get(String(options.port)))
  if (port) {
    options.port = port
    options.lookup = (host, o, done) => (o.all ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4))
  }
  this.once('secureConnect', () => open.add(this)).once('close', () => open.delete(this))
  return connect.apply(this, args)
}

module.exports = {
  // forward sets the redirection of the service's ports: pairs of numbers, of all hosts or of the host after them.
  forward(pairs) {
    for (const [service, hub, host] of pairs) ports.set(host ? `${host}:${service}` : String(service), hub)
  },
  // ended settles when the connections that are open now have ended.
  ended: () => Promise.all([...open].map((socket) => new Promise((done) => socket.once('close', done)))),
  say: (event) => process.stdout.write(JSON.stringify(event) + '\n'),
  text: (v) => (v === undefined || v === null ? '' : String(v)),
  why: (err) => (err ? `${err.name}: ${err.message}` : ''),
}
