package amqp

import (
	"bytes"
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// accepts is a fuzzSink that accepts each message and does not settle it.
type accepts struct {
	fuzzSink
	refs [][]byte
}

func (a *accepts) Deliver(d *transport.Delivery) bool {
	a.refs = append(a.refs, bytes.Clone(d.Ref))
	return true
}

// Do does not block when a peer announces to settle second and never does.
func TestADispositionDoesNotBlock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		p := newFuzzPeer(func() uint32 { return 1 }, 0) // answers attaches with rcv-settle-mode 1
		a := &accepts{fuzzSink: fuzzSink{results: make(chan uint16, 8), replies: make(chan transport.Reply, 8)}}
		made, err := New(&Options{
			Network: netopt.Options{Plaintext: true, Dial: func(context.Context, string, string) (net.Conn, error) {
				return p, nil
			}}, Auth: AuthAnonymous, Addresses: &Addresses{Telemetry: "out", Commands: "in"},
		}).Dial(t.Context(), &transport.Config{Creds: &transport.Credentials{Host: "h", DeviceID: "d"}, Window: 4, Queue: 8,
			Sink: a})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- made.Run(ctx) }()
		made.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
		require.NoError(t, (<-a.replies).Err)
		synctest.Wait() // the peer has credit
		p.deliver([]byte{0, 0x53, 0x75, 0xa0, 1, 'x'})
		synctest.Wait()
		require.Len(t, a.refs, 1)
		began := time.Now()
		end := time.AfterFunc(time.Minute, cancel)
		made.Do(&transport.Request{Op: transport.OpSettle, Ref: a.refs[0], Outcome: transport.OutcomeAccept})
		end.Stop()
		require.Zero(t, time.Since(began))
		cancel()
		<-over
	})
}
