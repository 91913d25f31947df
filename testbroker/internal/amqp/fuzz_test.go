package amqp_test

import (
	"io"
	"runtime"
	"testing"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// balance is echo without refusals. It tracks attached links.
type balance struct {
	echo
	live map[*amqp.Link]bool
	bad  string
}

func (b *balance) Attached(l *amqp.Link) {
	if b.live[l] {
		b.bad = "a link was attached twice"
	}
	b.live[l] = true
	b.echo.Attached(l)
	b.echo.calls = nil
}

func (b *balance) Detached(l *amqp.Link) {
	if !b.live[l] {
		b.bad = "a link was detached that was not attached"
	}
	delete(b.live, l)
}

// FuzzServe sends any bytes to a connection, from the first byte on. The connection must end with
// its stream, all its output must be AMQP, every link must be released, and memory is bounded by
// the input.
func FuzzServe(f *testing.F) {
	plain, sasl := wire.ProtocolHeader(wire.ProtocolAMQP), wire.ProtocolHeader(wire.ProtocolSASL)
	frames := func(all []byte, say ...wire.Performative) []byte {
		for _, p := range say {
			var payload []byte
			if _, ok := p.(*wire.Transfer); ok {
				payload = []byte("hello")
			}
			all, _ = wire.AppendFrame(all, 0, p, payload)
		}
		return all
	}
	hello := func(more ...wire.Performative) []byte {
		return frames(plain[:], append(append([]wire.Performative{}, begin...), more...)...)
	}
	transfer := &wire.Transfer{Handle: 1, DeliveryID: wire.Some(uint32(0)), DeliveryTag: []byte("a"),
		MessageFormat: wire.Some(uint32(0))}
	part := &wire.Transfer{Handle: 1, DeliveryID: wire.Some(uint32(0)), DeliveryTag: []byte("a"), More: true}
	credit := &wire.Flow{IncomingWindow: 1, Handle: wire.Some(uint32(2)), LinkCredit: wire.Some(uint32(1 << 30)),
		Echo: true}
	f.Add(append(frames(sasl[:], &wire.Init{Mechanism: "PLAIN", InitialResponse: []byte("\x00a\x00b")}),
		hello(sender, transfer)...))
	f.Add(hello(sender, receiver("in"), credit, transfer, &wire.Disposition{Role: wire.RoleReceiver,
		State: &wire.Accepted{}}, &wire.Close{}))
	f.Add(hello(sender, part, part, &wire.Transfer{Handle: 1, Aborted: true}, &wire.Detach{Handle: 1, Closed: true},
		sender, &wire.End{}))
	f.Add(hello(receiver("refused"), receiver("in"), credit, &wire.Flow{Handle: wire.Some(uint32(2)), Drain: true},
		&wire.End{Error: wire.Errorf("x",
			"y")}))
	f.Add(hello(sender, sender, &wire.Begin{}, &wire.Open{}))
	f.Add([]byte("AMQP\x00\x01\x00"))
	f.Add([]byte("\x16\x03\x01\x02\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		client, server := memconn.Pair("client", "server")
		server.SetBuffer(0)
		h := &balance{live: make(map[*amqp.Link]bool)}
		c := amqp.NewConn(server, amqp.Config{ContainerID: "s", MaxFrameSize: 1024, ChannelMax: 1, HandleMax: 9,
			SessionWindow: 10}, h)
		over := make(chan struct{})
		go func() { // ends with the client's stream
			defer close(over)
			c.Serve()
			server.Close()
		}()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		client.SetDeadline(time.Now().Add(20 * time.Second))
		client.Write(b) // the connection may be closed already
		client.CloseWrite()
		said, err := io.ReadAll(client)
		if err != nil {
			t.Fatalf("%x: the connection does not end: %v", b, err)
		}
		<-over
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20+2000*uint64(len(b)) {
			t.Errorf("%d bytes for %d", used, len(b))
		}
		if h.bad != "" || len(h.live) > 0 {
			t.Errorf("%x: %s, %d links left", b, h.bad, len(h.live))
		}
		for len(said) >= wire.HeaderSize && string(said[:4]) == "AMQP" {
			said = said[wire.HeaderSize:]
			for len(said) > 0 && string(said[:min(4, len(said))]) != "AMQP" {
				f, n, err := wire.Split(said, 1<<20)
				if err != nil || n == 0 {
					t.Fatalf("%x: said %x: %v", b, said, err)
				}
				if _, _, err := f.Performative(); len(f.Body) > 0 && err != nil {
					t.Fatalf("%x: said %x: %v", b, said[:n], err)
				}
				said = said[n:]
			}
		}
		if len(said) > 0 {
			t.Errorf("%x: said %x", b, said)
		}
	})
}
