package amqp_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

var errStop = errors.New("stop")

// echo is a server that sends each message back on the newest link that receives from "echo".
type echo struct {
	calls   []string
	to      *amqp.Link
	payload []byte // of each transfer of the client; nil is "hello"
}

func (e *echo) Mechanisms() []wire.Symbol { return []wire.Symbol{"PLAIN"} }
func (e *echo) Authenticate(m wire.Symbol, response []byte) uint8 {
	e.calls = append(e.calls, "authenticate "+string(m)+" "+string(response))
	return wire.SASLOK
}
func (e *echo) Open(o *wire.Open) error { e.calls = append(e.calls, "open "+o.Hostname); return nil }
func (e *echo) Opened() error           { e.calls = append(e.calls, "opened"); return nil }
func (e *echo) Attach(l *amqp.Link) error {
	e.calls = append(e.calls, "attach "+l.Asked.Name)
	switch l.Asked.Name {
	case "refused":
		return wire.Errorf(wire.NotAllowed, "no")
	case "stop":
		return errStop
	}
	return nil
}
func (e *echo) Attached(l *amqp.Link) {
	e.calls = append(e.calls, "attached "+l.Asked.Name)
	if l.Receives() {
		l.Allow(10)
	} else {
		e.to = l
	}
}
func (e *echo) Message(l *amqp.Link, d amqp.Delivery) error {
	e.calls = append(e.calls, "message "+string(d.Payload))
	if e.to != nil && !e.to.Send(amqp.Outgoing{Tag: d.Tag, Payload: d.Payload}) {
		l.Settle(d.ID, &wire.Released{})
		return nil
	}
	l.Settle(d.ID, &wire.Accepted{})
	return nil
}
func (e *echo) Credit(*amqp.Link) { e.calls = append(e.calls, "credit") }
func (e *echo) Settled(_ *amqp.Link, tag []byte, _ wire.DeliveryState) wire.DeliveryState {
	e.calls = append(e.calls, "settled "+string(tag))
	return &wire.Accepted{}
}
func (e *echo) Detached(l *amqp.Link) { e.calls = append(e.calls, "detached "+l.Asked.Name) }
func (e *echo) Idle()                 { e.calls = append(e.calls, "idle") }

// serve runs a connection whose client sends everything at once. It returns what the server sent,
// and the result of Serve.
func serve(t *testing.T, h *echo, say ...wire.Performative) (said []wire.Performative, err error) {
	t.Helper()
	client, server := memconn.Pair("client", "server")
	server.SetBuffer(0)
	c := amqp.NewConn(server, amqp.Config{ContainerID: "s", MaxFrameSize: 1024, ChannelMax: 1, HandleMax: 9,
		SessionWindow: 10}, h)
	done := make(chan error, 1)
	go func() {
		done <- c.Serve()
		server.Close()
	}()
	head := wire.ProtocolHeader(wire.ProtocolAMQP)
	all := head[:]
	for _, p := range say {
		var payload []byte
		if _, ok := p.(*wire.Transfer); ok {
			if payload = h.payload; payload == nil {
				payload = []byte("hello")
			}
		}
		all, err = wire.AppendFrame(all, 0, p, payload)
		require.NoError(t, err)
	}
	_, err = client.Write(all)
	require.NoError(t, err)
	require.NoError(t, client.CloseWrite())
	answer, err := io.ReadAll(client)
	require.NoError(t, err)
	for b := answer[wire.HeaderSize:]; len(b) > 0; {
		f, n, err := wire.Split(b, 1024)
		require.NoError(t, err)
		require.NotZero(t, n)
		p, _, err := f.Performative()
		require.NoError(t, err)
		said = append(said, p)
		b = b[n:]
	}
	return said, <-done
}

var (
	begin = []wire.Performative{&wire.Open{ContainerID: "c", Hostname: "h", MaxFrameSize: 1024},
		&wire.Begin{IncomingWindow: 10, OutgoingWindow: 10}}
	sender = &wire.Attach{Name: "out", Handle: 1, Role: wire.RoleSender, SndSettleMode: wire.SendMixed,
		Target: &wire.Target{Address: "echo"}, InitialDeliveryCount: wire.Some(uint32(0))}
)

func receiver(name string) *wire.Attach {
	return &wire.Attach{Name: name, Handle: 2, Role: wire.RoleReceiver, SndSettleMode: wire.SendMixed,
		RcvSettleMode: wire.ReceiveSecond, Source: &wire.Source{Address: "echo"}}
}

func TestTheLifeOfAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &echo{}
		said, err := serve(t, h, append(begin, sender, receiver("in"),
			&wire.Flow{IncomingWindow: 10, Handle: wire.Some(uint32(2)), LinkCredit: wire.Some(uint32(1))},
			&wire.Transfer{Handle: 1, DeliveryID: wire.Some(uint32(0)), DeliveryTag: []byte("a"),
				MessageFormat: wire.Some(uint32(0))},
			&wire.Transfer{Handle: 1, DeliveryID: wire.Some(uint32(1)), DeliveryTag: []byte("b"),
				MessageFormat: wire.Some(uint32(0))},
			&wire.Disposition{Role: wire.RoleReceiver, State: &wire.Accepted{}},
			&wire.Detach{Handle: 1, Closed: true}, &wire.Close{})...)
		require.NoError(t, err)
		require.Equal(t, []string{
			"open h", "opened", "attach out", "attached out", "attach in", "attached in", "credit", "message hello",
			"message hello", "settled a",
			"detached out", "detached in",
		}, h.calls)
		var kinds []wire.DeliveryState
		transfers := 0
		for _, p := range said {
			switch p := p.(type) {
			case *wire.Disposition:
				kinds = append(kinds, p.State)
			case *wire.Transfer:
				transfers++
			}
		}
		require.Equal(t, 1, transfers, "there was credit for one")
		require.ElementsMatch(t, []wire.DeliveryState{&wire.Accepted{}, &wire.Released{}, &wire.Accepted{}}, kinds,
			"of the first, the second, and the answer to the client's")
		require.IsType(t, &wire.Close{}, said[len(said)-1])
	})
}

// serve fails for a frame above the 1,024 bytes that the client takes.
func TestALargeMessageGoesInFramesThatTheClientTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said, err := serve(t, &echo{payload: make([]byte, 900)}, append(begin, sender, receiver("in"),
			&wire.Flow{IncomingWindow: 10, Handle: wire.Some(uint32(2)), LinkCredit: wire.Some(uint32(1))},
			&wire.Transfer{Handle: 1, DeliveryID: wire.Some(uint32(0)), DeliveryTag: []byte("a"),
				MessageFormat: wire.Some(uint32(0)), More: true},
			&wire.Transfer{Handle: 1}, &wire.Close{})...)
		require.NoError(t, err)
		var more []bool
		for _, p := range said {
			if p, ok := p.(*wire.Transfer); ok {
				more = append(more, p.More)
			}
		}
		require.Equal(t, []bool{true, false}, more)
	})
}

func TestHowAConnectionEnds(t *testing.T) {
	for name, c := range map[string]struct {
		say  []wire.Performative
		want error
		last wire.Performative
	}{
		"end of the stream": {append(begin, sender), io.EOF, nil},
		"handler's wish":    {append(begin, receiver("stop")), errStop, nil},
		"refusal":           {append(begin, receiver("refused"), &wire.Close{}), nil, &wire.Close{}},
		"end of a session":  {append(begin, sender, &wire.End{}, &wire.Close{}), nil, &wire.Close{}},
		"violation": {append(begin, sender, &wire.Open{ContainerID: "again"}), wire.Errorf(wire.IllegalState,
			"second open"), &wire.Close{Error: wire.Errorf(wire.IllegalState, "second open")}},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			h := &echo{}
			said, err := serve(t, h, c.say...)
			require.Equal(t, c.want, err)
			if c.last != nil {
				require.Equal(t, c.last, said[len(said)-1])
			}
			attached, detached := 0, 0
			for _, call := range h.calls {
				switch call {
				case "attached out":
					attached++
				case "detached out":
					detached++
				}
			}
			require.Equal(t, attached, detached, "who was told of a link is told of its end")
		})
	}
}

// A small frame frees the buffer of a burst.
func TestAnIdleConnectionHasASmallBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := memconn.Pair("client", "server")
		server.SetBuffer(0)
		client.SetBuffer(0)
		c := amqp.NewConn(server, amqp.Config{ContainerID: "s", MaxFrameSize: 32 << 10, ChannelMax: 1, HandleMax: 9,
			SessionWindow: 10}, &echo{})
		done := make(chan error, 1)
		go func() { done <- c.Serve() }()
		say := func(payload int, all ...wire.Performative) {
			var frames []byte
			for _, p := range all {
				var err error
				frames, err = wire.AppendFrame(frames, 0, p, make([]byte, payload))
				require.NoError(t, err)
				payload = 0
			}
			_, err := client.Write(frames)
			require.NoError(t, err)
			synctest.Wait()
		}
		head := wire.ProtocolHeader(wire.ProtocolAMQP)
		_, err := client.Write(head[:])
		require.NoError(t, err)
		say(0, &wire.Open{ContainerID: "c", Hostname: "h", MaxFrameSize: 32 << 10},
			&wire.Begin{IncomingWindow: 10, OutgoingWindow: 10}, sender, receiver("in"),
			&wire.Flow{IncomingWindow: 10, OutgoingWindow: 10, Handle: wire.Some(uint32(2)), LinkCredit: wire.Some(uint32(9))})
		say(30<<10, &wire.Transfer{Handle: 1, DeliveryID: wire.Some(uint32(0)), DeliveryTag: []byte("t")})
		ping := &wire.Flow{IncomingWindow: 10, OutgoingWindow: 10, Echo: true}
		require.Greater(t, c.Buffer(), 30<<10, "the message came back")
		say(0, ping)
		require.LessOrEqual(t, c.Buffer(), 4<<10)
		client.Close()
		require.Error(t, <-done)
	})
}
