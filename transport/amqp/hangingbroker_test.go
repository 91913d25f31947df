package amqp_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// hangingBroker is a broker that accepts messages. From a device called "slow" it accepts one
// frame: it never opens the window of that session again, and ends neither its links nor its
// session.
func hangingBroker(c net.Conn) {
	hello(c, wire.ProtocolSASL)
	say(c, 0, &wire.Mechanisms{Mechanisms: []wire.Symbol{"ANONYMOUS"}})
	listen(c, func(uint16, wire.Performative, []byte) bool { return false }) // the client waits for the outcome
	say(c, 0, &wire.Outcome{})
	hello(c, wire.ProtocolAMQP)
	slow := map[uint16]bool{}
	listen(c, func(channel uint16, p wire.Performative, _ []byte) bool {
		switch p := p.(type) {
		case *wire.Open:
			say(c, 0, &wire.Open{ContainerID: "hangingBroker", MaxFrameSize: 1 << 16, ChannelMax: 100})
		case *wire.Begin:
			say(c, channel, &wire.Begin{RemoteChannel: wire.Some(channel), IncomingWindow: 1, OutgoingWindow: 100,
				HandleMax: 100})
		case *wire.Attach:
			slow[channel] = strings.Contains(p.Target.(*wire.Target).Address.(string), "slow")
			window := uint32(1000)
			if slow[channel] {
				window = 1
			}
			say(c, channel,
				&wire.Attach{Name: p.Name, Handle: p.Handle, Role: wire.RoleReceiver, Source: p.Source, Target: p.Target},
				&wire.Flow{NextIncomingID: wire.Some(uint32(0)), IncomingWindow: window, OutgoingWindow: 100,
					Handle: wire.Some(p.Handle), DeliveryCount: wire.Some(uint32(0)), LinkCredit: wire.Some(uint32(1000))})
		case *wire.Transfer:
			if p.DeliveryID.OK && !slow[channel] {
				say(c, channel, &wire.Disposition{Role: wire.RoleReceiver, First: p.DeliveryID.V, Settled: true,
					State: &wire.Accepted{}})
			}
		case *wire.Detach:
			if !slow[channel] {
				say(c, channel, &wire.Detach{Handle: p.Handle, Closed: true})
			}
		case *wire.End:
			if !slow[channel] {
				say(c, channel, &wire.End{})
			}
		case *wire.Close:
			say(c, 0, &wire.Close{})
			return false
		}
		return true
	})
}

func hanging() *amqp.Options {
	return &amqp.Options{Network: between(hangingBroker), Addresses: &amqp.Addresses{Telemetry: "q.{device}"}}
}

// A device with a closed window does not block the others, and leaves in time.
func TestABlockedSenderDoesNotBlockOthers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		mux := amqp.NewMux(hanging())
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
		tr := amqp.New(hanging())
		slow := start(t, tr, &transport.Credentials{Host: "broker", DeviceID: "slow"})
		slow.send(0, "a", "b", "c")
		began := time.Now()
		slow.requireEnd(transport.Timeout)
		require.InDelta(t, 20, time.Since(began).Seconds(), 1)
		require.Empty(t, slow.sink.AllResults())
	})
}
