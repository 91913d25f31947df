// A WebSocket server in front of an MQTT broker, with the library ws: it forwards frames as a byte stream, and back. It reads its settings as one
// line of JSON from standard input, prints its port, and ends when standard input ends.
'use strict'
const https = require('https')
const net = require('net')
const readline = require('readline')
const { WebSocketServer } = require('ws')

function serve({ cert, key, path, broker }) {
  const server = https.createServer({ cert, key })
  const sockets = new WebSocketServer({
    server,
    path,
    perMessageDeflate: true,
    handleProtocols: (offered) => (offered.has('mqtt') ? 'mqtt' : false),
  })
  sockets.on('connection', (ws) => {
    const link = net.connect(broker, '127.0.0.1')
    let n = 0
    link.on('data', (data) => {
      // Frames need not be packets: every second one is sent in two fragments, cut anywhere, sometimes with a ping between two messages.
      const at = n++ % 2 ? Math.floor(data.length / 2) : 0
      if (at > 0) ws.send(data.subarray(0, at), { binary: true, fin: false })
      ws.send(data.subarray(at), { binary: true, fin: true })
      if (n % 16 === 0 && ws.readyState === ws.OPEN) ws.ping('still there?')
    })
    ws.on('message', (data, binary) => {
      if (!binary) return ws.close(1003, 'MQTT comes in binary frames')
      link.write(data)
    })
    link.on('close', () => ws.close(1001))
    link.on('error', () => ws.terminate())
    ws.on('close', () => link.end())
    ws.on('error', () => link.destroy())
  })
  server.on('tlsClientError', () => {})
  server.listen(0, '127.0.0.1', () => process.stdout.write(JSON.stringify({ on: 'listening', port: server.address().port }) + '\n'))
}

readline.createInterface({ input: process.stdin })
  .on('line', (line) => serve(JSON.parse(line)))
  .on('close', () => process.exit(0))
