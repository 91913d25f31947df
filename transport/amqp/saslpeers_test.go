package amqp_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// insistent is a peer before the hub that insists on SASL, with these mechanisms. It closes a
// connection without SASL as the standard says.
type insistent struct {
	hub        *hub
	mechanisms []wire.Symbol
	code       uint8  // of the outcome
	again      bool   // after the dialogue it answers with the header of SASL once more
	challenge  []byte // sent before the outcome; nil: none

	mu    sync.Mutex
	dials int
	inits []*wire.Init
}

func (p *insistent) options() *amqp.Options {
	return &amqp.Options{Network: netopt.Options{Plaintext: true, Dial: func(ctx context.Context, network,
		addr string) (net.Conn, error) {
		p.mu.Lock()
		p.dials++
		p.mu.Unlock()
		near, far := memconn.Pair("near", "far")
		go func() {
			defer far.Close()
			if p.greet(far) {
				p.serve(context.WithoutCancel(ctx), far, network, addr)
			}
		}()
		return near, nil
	}}}
}

// greet reports whether the dialogue succeeded.
func (p *insistent) greet(far net.Conn) bool {
	got := make([]byte, wire.HeaderSize)
	sasl := wire.ProtocolHeader(wire.ProtocolSASL)
	if _, err := io.ReadFull(far, got); err != nil {
		return false
	}
	_, _ = far.Write(sasl[:])
	if string(got) != string(sasl[:]) {
		return false
	}
	say(far, 0, &wire.Mechanisms{Mechanisms: p.mechanisms})
	init, ok := readFrame(far).(*wire.Init)
	if !ok {
		return false
	}
	p.mu.Lock()
	p.inits = append(p.inits, init)
	p.mu.Unlock()
	if p.challenge != nil {
		say(far, 0, &wire.Challenge{Challenge: p.challenge})
		if readFrame(far) == nil {
			return false
		}
	}
	say(far, 0, &wire.Outcome{Code: p.code})
	if p.again {
		_, _ = io.ReadFull(far, got)
		_, _ = far.Write(sasl[:])
		return false
	}
	return p.code == wire.SASLOK
}

// readFrame reads a frame, nil at the end of the connection.
func readFrame(r io.Reader) wire.Performative {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil
	}
	rest := make([]byte, binary.BigEndian.Uint32(head)-4)
	if _, err := io.ReadFull(r, rest); err != nil {
		return nil
	}
	f, _, err := wire.Split(append(head, rest...), 1<<20)
	if err != nil {
		return nil
	}
	performative, _, err := f.Performative()
	if err != nil {
		return nil
	}
	return performative
}

// serve passes everything on to the hub, where the connection is one without SASL.
func (p *insistent) serve(ctx context.Context, far net.Conn, network, addr string) {
	hub, err := p.hub.Dial(testbroker.PortAMQP)(ctx, network, addr)
	if err != nil {
		return
	}
	defer hub.Close()
	go func() {
		_, _ = io.Copy(far, hub)
		_ = far.Close()
	}()
	_, _ = io.Copy(hub, far)
}

// used returns the mechanisms of the dialogues, and the number of connections.
func (p *insistent) used() (mechanisms []wire.Symbol, dials int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.inits {
		mechanisms = append(mechanisms, i.Mechanism)
	}
	return mechanisms, p.dials
}

// Builds of edge gateways offer different mechanisms for connections whose tokens follow by CBS.
func TestPeersThatInsistOnSASL(t *testing.T) {
	for name, c := range map[string]struct {
		offer []wire.Symbol
		want  wire.Symbol
	}{
		"an older gateway":             {[]wire.Symbol{"EXTERNAL", "ANONYMOUS", "PLAIN"}, "ANONYMOUS"},
		"a newer gateway":              {[]wire.Symbol{"EXTERNAL", "MSSBCBS", "PLAIN"}, "MSSBCBS"},
		"a hub":                        {[]wire.Symbol{"PLAIN", "ANONYMOUS", "MSSBCBS", "EXTERNAL"}, "MSSBCBS"},
		"a single mechanism":           {[]wire.Symbol{"ANONYMOUS"}, "ANONYMOUS"},
		"mechanisms that nobody knows": {[]wire.Symbol{"X-NEW", "ANONYMOUS"}, "ANONYMOUS"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				p := &insistent{hub: h, mechanisms: c.offer}
				for _, tr := range []transport.Transport{amqp.New(p.options()), amqp.NewMux(p.options())} {
					client, err := device.New(h.CredsWith(t, ""), tr, nil)
					require.NoError(t, err)
					require.NoError(t, client.Open(t.Context()))
					require.NoError(t, client.Send(t.Context(), &transport.Message{Body: []byte("x")}))
					time.Sleep(2 * time.Hour) // the token is renewed in place
					require.NoError(t, client.Send(t.Context(), &transport.Message{Body: []byte("y")}))
					require.NoError(t, client.Close())
				}
				used, dials := p.used()
				require.Equal(t, []wire.Symbol{c.want, c.want}, used)
				require.Equal(t, 4, dials, "each transport asks without SASL first")
				require.Equal(t, "hub.example.test", p.inits[0].Hostname)
				require.Len(t, h.Messages(), 4)
			})
		})
	}
}

// Two dials at most, and then an error that says why: no loop.
func TestAPeerThatInsistsOnSASLAndRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		peer  *insistent
		kind  transport.Kind
		text  string
		retry bool
	}{
		"no mechanism": {&insistent{mechanisms: []wire.Symbol{"PLAIN", "X-NEW"}}, transport.Unsupported,
			"set Options.Auth to amqp.AuthPlain", false},
		"refused": {&insistent{mechanisms: []wire.Symbol{"ANONYMOUS"}, code: 1}, transport.Unauthorized, "SASL outcome 1",
			false},
		"in trouble": {&insistent{mechanisms: []wire.Symbol{"MSSBCBS"}, code: 2}, transport.Unavailable, "SASL outcome 2",
			true},
		"a challenge": {&insistent{mechanisms: []wire.Symbol{"MSSBCBS"}, challenge: []byte("?")}, transport.Protocol,
			"challenge", false},
		"insists again": {&insistent{mechanisms: []wire.Symbol{"MSSBCBS"}, again: true}, transport.Protocol,
			"does not speak AMQP 1.0", false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				c.peer.hub = h
				_, err := amqp.New(c.peer.options()).Dial(t.Context(), &transport.Config{Creds: h.CredsWith(t, ""),
					Sink: &sink{}})
				require.ErrorIs(t, err, c.kind, "%v", err)
				require.ErrorContains(t, err, c.text)
				require.Equal(t, c.retry, errfilter.Retryable(err), "%v", err)
				_, dials := c.peer.used()
				require.Equal(t, 2, dials)
			})
		})
	}
}

// A device with a certificate has SASL EXTERNAL there. Its initial response is empty, not absent:
// a peer would ask for an absent one.
func TestACertificateAtAPeerThatInsistsOnSASL(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		p := &insistent{hub: h, mechanisms: []wire.Symbol{"MSSBCBS", "EXTERNAL"}}
		creds := *h.CredsWith(t, "")
		creds.Sign = nil
		start(t, amqp.New(p.options()), &creds)
		used, _ := p.used()
		require.Equal(t, []wire.Symbol{"EXTERNAL"}, used)
		require.NotNil(t, p.inits[0].InitialResponse)
		require.Empty(t, p.inits[0].InitialResponse)
	})
}
