package amqp

import (
	"bytes"
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// The receiver settles first. Otherwise the library would wait for an answer to each disposition,
// and keep the number of each aborted delivery for ever.
func TestReceiversSettleFirst(t *testing.T) {
	s := newTestScreen(t)
	s.sends(1, &wire.Attach{Name: "in 2", Handle: 2, Role: wire.RoleReceiver})
	s.sends(1, &wire.Attach{Name: "out 2", Handle: 3, Role: wire.RoleSender})
	got := s.rewritten(encode(t, 1, &wire.Attach{
		Name: "in 2", Handle: 12, Role: wire.RoleSender, SndSettleMode: 1, RcvSettleMode: 1,
		Source: &wire.Source{Address: "a"}, InitialDeliveryCount: wire.Some(uint32(7)),
	}, nil)).(*wire.Attach)
	want := &wire.Attach{Name: "in 2", Handle: 12, Role: wire.RoleSender, SndSettleMode: 1, Source: got.Source,
		InitialDeliveryCount: wire.Some(uint32(7))}
	require.Equal(t, want, got)
	// on a sending link the peer decides
	s.passes(1, &wire.Attach{Name: "out 2", Handle: 13, Role: wire.RoleReceiver, RcvSettleMode: 1, Target: &wire.Target{}})
}

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
	bounded.Test(t, func(t *testing.T) {
		p := newFuzzPeer(func() uint32 { return 1 }, 0) // answers attaches with rcv-settle-mode 1
		a := &accepts{fuzzSink: fuzzSink{results: make(chan uint16, 8), replies: make(chan transport.Reply, 8)}}
		made, err := New(&Options{
			Network: netopt.Options{Plaintext: true, Dial: func(context.Context, string, string) (net.Conn, error) {
				return p, nil
			}}, Auth: Anonymous, Addresses: &Addresses{Telemetry: "out", CloudToDevice: "in"},
		}).Dial(t.Context(), &transport.Config{Creds: &transport.Credentials{Host: "h", DeviceID: "d"}, Window: 4, Queue: 8,
			Sink: a})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- made.Run(ctx) }()
		made.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.Messages})
		require.NoError(t, (<-a.replies).Err)
		synctest.Wait() // the peer has credit
		first := delivery(0, false)
		first.Handle = 0
		p.mu.Lock()
		p.out = append(p.out, encode(t, p.channel, first, []byte{0, 0x53, 0x75, 0xa0, 1, 'x'})...)
		p.more.Broadcast()
		p.mu.Unlock()
		synctest.Wait()
		require.Len(t, a.refs, 1)
		began := time.Now()
		end := time.AfterFunc(time.Minute, cancel)
		made.Do(&transport.Request{Op: transport.OpSettle, Ref: a.refs[0], Outcome: transport.Accept})
		end.Stop()
		require.Zero(t, time.Since(began))
		cancel()
		<-over
	})
}
