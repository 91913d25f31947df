package main

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"
)

const user, password = "example", "secret"

// broker is an MQTT broker in this process, with a port for devices, which goes away, and one for
// back ends.
type broker struct {
	server *mochi.Server
	inner  *listeners.TCP

	mu       sync.Mutex // guards the fields below
	addr     string     // of the port for devices
	listener net.Listener
	conns    map[net.Conn]bool
	closed   bool
}

func startBroker() (*broker, error) {
	b := &broker{
		server: mochi.New(&mochi.Options{Logger: slog.New(slog.DiscardHandler)}),
		inner:  listeners.NewTCP(listeners.Config{ID: "back ends", Address: "127.0.0.1:0"}),
		addr:   "127.0.0.1:0",
		conns:  map[net.Conn]bool{},
	}
	err := errors.Join(b.server.AddHook(new(rules), nil), b.server.AddListener(b.inner), b.server.Serve(),
		b.listen())
	if err != nil {
		return nil, errors.Join(err, b.server.Close())
	}
	return b, nil
}

// rules let clients with the password use all topics.
type rules struct{ mochi.HookBase }

func (*rules) Provides(b byte) bool { return b == mochi.OnConnectAuthenticate || b == mochi.OnACLCheck }

func (*rules) OnConnectAuthenticate(_ *mochi.Client, p packets.Packet) bool {
	return string(p.Connect.Username) == user && string(p.Connect.Password) == password
}

func (*rules) OnACLCheck(*mochi.Client, string, bool) bool { return true }

// urls returns the URLs for devices and for back ends.
func (b *broker) urls() (devices, backEnds string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	begin := "mqtt://" + user + ":" + password + "@"
	return begin + b.addr, begin + b.inner.Address()
}

// listen accepts connections of devices from now on.
func (b *broker) listen() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	listener, err := net.Listen("tcp", b.addr)
	if err != nil {
		return err
	}
	b.listener, b.addr = listener, listener.Addr().String()
	go b.accept(listener) // ends when the listener is closed
	return nil
}

func (b *broker) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		current := b.listener == listener && !b.closed
		if current {
			b.conns[conn] = true
		}
		b.mu.Unlock()
		if !current {
			conn.Close()
			return
		}
		go func() { // ends with the connection
			_ = b.server.EstablishConnection("devices", conn) // the client sees why
			b.mu.Lock()
			delete(b.conns, conn)
			b.mu.Unlock()
			conn.Close()
		}()
	}
}

// goAway cuts the connections of all devices, and refuses new ones for that long.
func (b *broker) goAway(d time.Duration) {
	say("broker", "goes away")
	b.cut()
	time.AfterFunc(d, func() {
		if err := b.listen(); err != nil {
			say("broker", "%v", err)
			return
		}
		say("broker", "is back")
	})
}

func (b *broker) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listener.Close()
	for conn := range b.conns {
		conn.Close()
	}
}

// close cuts all connections. The end of the process ends the rest: mochi's Close waits for
// handlers of its clients without a limit.
func (b *broker) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cut()
}
