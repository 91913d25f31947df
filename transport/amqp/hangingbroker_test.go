package amqp_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// hangingBroker is a broker that accepts messages. From a device called "slow" it accepts one
// frame: it never opens the window of that session again, and ends neither its links nor its
// session.
func hangingBroker(c net.Conn) {
	defer c.Close()
	write := func(b []byte) { _, _ = c.Write(b) }
	send := func(channel uint16, p wire.Performative) {
		b, err := wire.AppendFrame(nil, channel, p, nil)
		if err != nil {
			panic(err)
		}
		write(b)
	}
	hello := func(id byte) {
		_, _ = io.ReadFull(c, make([]byte, wire.HeaderSize))
		h := wire.ProtocolHeader(id)
		write(h[:])
	}
	var buf []byte
	next := func() (f wire.Frame, ok bool) {
		for {
			if f, n, err := wire.Split(buf, 1<<20); err != nil {
				return f, false
			} else if n > 0 {
				buf = buf[n:]
				return f, true
			}
			part := make([]byte, 4096)
			n, err := c.Read(part)
			if err != nil {
				return f, false
			}
			buf = append(buf, part[:n]...)
		}
	}
	hello(wire.ProtocolSASL)
	send(0, &wire.Mechanisms{Mechanisms: []wire.Symbol{"ANONYMOUS"}})
	_, _ = next()
	send(0, &wire.Outcome{})
	if len(buf) == 0 {
		hello(wire.ProtocolAMQP)
	} else {
		return // not accepted: the client waits for the outcome
	}
	slow := map[uint16]bool{}
	for {
		f, ok := next()
		if !ok {
			return
		}
		if len(f.Body) == 0 {
			continue
		}
		p, _, err := f.Performative()
		if err != nil {
			return
		}
		switch p := p.(type) {
		case *wire.Open:
			send(0, &wire.Open{ContainerID: "hangingBroker", MaxFrameSize: 1 << 16, ChannelMax: 100})
		case *wire.Begin:
			send(f.Channel, &wire.Begin{RemoteChannel: wire.Some(f.Channel), IncomingWindow: 1, OutgoingWindow: 100,
				HandleMax: 100})
		case *wire.Attach:
			slow[f.Channel] = strings.Contains(p.Target.(*wire.Target).Address.(string), "slow")
			send(f.Channel, &wire.Attach{Name: p.Name, Handle: p.Handle, Role: wire.RoleReceiver, Source: p.Source,
				Target: p.Target})
			window := uint32(1000)
			if slow[f.Channel] {
				window = 1
			}
			send(f.Channel, &wire.Flow{NextIncomingID: wire.Some(uint32(0)), IncomingWindow: window, OutgoingWindow: 100,
				Handle: wire.Some(p.Handle), DeliveryCount: wire.Some(uint32(0)), LinkCredit: wire.Some(uint32(1000))})
		case *wire.Transfer:
			if p.DeliveryID.OK && !slow[f.Channel] {
				send(f.Channel, &wire.Disposition{Role: wire.RoleReceiver, First: p.DeliveryID.V, Settled: true,
					State: &wire.Accepted{}})
			}
		case *wire.Detach:
			if !slow[f.Channel] {
				send(f.Channel, &wire.Detach{Handle: p.Handle, Closed: true})
			}
		case *wire.End:
			if !slow[f.Channel] {
				send(f.Channel, &wire.End{})
			}
		case *wire.Close:
			send(0, &wire.Close{})
			return
		}
	}
}

// A device with a closed window does not block the others, and leaves in time.
func TestABlockedSenderDoesNotBlockOthers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		mux := amqp.NewMux(&amqp.Options{
			Network: netopt.Options{Plaintext: true, Dial: func(context.Context, string, string) (net.Conn, error) {
				near, far := memconn.Pair("near", "far")
				go hangingBroker(far)
				return near, nil
			}}, Addresses: &amqp.Addresses{Telemetry: "q.{device}"},
		})
		creds := func(id string) *transport.Credentials { return &transport.Credentials{Host: "broker", DeviceID: id} }
		good := start(t, mux, creds("good"))
		good.requireSends("x")
		slow := start(t, mux, creds("slow"))
		slow.send(0, "a", "b", "c")
		for range 5 {
			time.Sleep(time.Second)
			began := time.Now()
			good.requireSends("y")
			require.Less(t, time.Since(began), time.Second)
		}
		began := time.Now()
		slow.cancel()
		<-slow.over
		require.LessOrEqual(t, time.Since(began), time.Second)
		good.requireSends("z")
		require.Empty(t, slow.sink.AllResults())
	})
}

// If it is not closed, its session ends in time.
func TestABlockedSenderTimesOut(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		tr := amqp.New(&amqp.Options{
			Network: netopt.Options{Plaintext: true, Dial: func(context.Context, string, string) (net.Conn, error) {
				near, far := memconn.Pair("near", "far")
				go hangingBroker(far)
				return near, nil
			}}, Addresses: &amqp.Addresses{Telemetry: "q.{device}"},
		})
		slow := start(t, tr, &transport.Credentials{Host: "broker", DeviceID: "slow"})
		slow.send(0, "a", "b", "c")
		began := time.Now()
		slow.requireEnd(transport.Timeout)
		require.InDelta(t, 20, time.Since(began).Seconds(), 1)
		require.Empty(t, slow.sink.AllResults())
	})
}
