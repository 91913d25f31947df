package amqp_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// frame returns a frame on the channel of the device, with a type and a data offset.
func frame(t testing.TB, kind, offset byte, body string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(body, " ", ""))
	require.NoError(t, err)
	const channel = 1 // 0 belongs to the tokens
	head := binary.BigEndian.AppendUint32(nil, uint32(8+len(b)))
	return append(append(head, offset, kind, 0, channel), b...)
}

// afterFrame sends a frame to a device with links for telemetry (handle 0) and cloud-to-device
// messages (handle 1), and calls then.
func afterFrame(t *testing.T, b []byte, then func(h *hub, r *running)) {
	t.Helper()
	bubble(t, func(t *testing.T, h *hub) {
		r := h.dev1(t, h.options())
		r.requireSends("x")
		r.subscribe(1)
		require.Equal(t, 1, h.SendRaw("dev-1", b))
		then(h, r)
	})
}

// requireViolation requires that the frame ends the session with a reason, and that the error is
// retryable.
func requireViolation(t *testing.T, b []byte, reason string) {
	t.Helper()
	afterFrame(t, b, func(_ *hub, r *running) {
		e := r.requireEnd(transport.Protocol)
		require.ErrorContains(t, e, reason)
		require.ErrorIs(t, e, transport.ErrViolation)
		require.True(t, errfilter.Retryable(e))
		require.Empty(t, r.sink.Bodies())
	})
}

// transferred is the performative of a settled transfer to the device, without payload.
const transferred = "00 53 14 c0 09 05 52 01 43 a0 01 74 43 41 "

// requireIgnored requires that the frame has no effect.
func requireIgnored(t *testing.T, b []byte) {
	t.Helper()
	afterFrame(t, b, func(_ *hub, r *running) {
		r.requireAlive()
		r.requireSends("more")
		require.Empty(t, r.sink.Bodies())
	})
}

// A map key that Go cannot compare is harmless at any depth of a message, whether that is delivered
// or rejected.
func TestAMessageWithACompositeKeyIsHarmless(t *testing.T) {
	for name, message := range map[string]string{
		"annotations":            "00 53 72 c1 04 02 c0 01 00 40",
		"annotations, one down":  "00 53 72 c1 0c 02 a3 01 78 c1 06 02 00 a3 00 45 40",
		"application properties": "00 53 74 c1 0c 02 a1 01 78 c1 06 02 00 a3 00 45 40",
		"value, one down":        "00 53 77 c1 0b 02 54 01 c1 06 02 00 a3 00 45 40",
		"value, in a list":       "00 53 77 c0 09 01 c1 06 02 00 a3 00 45 40",
	} {
		t.Run(name, func(t *testing.T) {
			afterFrame(t, frame(t, 0, 2, transferred+message), func(_ *hub, r *running) {
				r.requireAlive()
				r.requireSends("more")
			})
		})
	}
}

// In any other frame such a key ends the session.
func TestAFrameWithACompositeKeyEndsTheSession(t *testing.T) {
	const bad = "c1 06 02 00 a3 00 45 40"
	for name, body := range map[string]string{
		"disposition": "00 53 15 c0 15 05 41 43 43 41 00 53 27 c0 0b 03 40 40 " + bad,
		"flow":        "00 53 13 c0 1b 0b 43 52 09 43 52 09 40 40 40 40 40 40 c1 0c 02 a3 01 78 " + bad,
		"close":       "00 53 18 c0 19 01 00 53 1d c0 13 03 a3 01 78 40 c1 0c 02 a3 01 78 " + bad,
		"end":         "00 53 17 c0 19 01 00 53 1d c0 13 03 a3 01 78 40 c1 0c 02 a3 01 78 " + bad,
	} {
		t.Run(name, func(t *testing.T) { requireViolation(t, frame(t, 0, 2, body), "key") })
	}
}

// The type and the data offset of a frame hide no payload.
func TestFrameTypeAndOffsetHideNoPayload(t *testing.T) {
	const poison = transferred + "00 53 72 c1 04 02 c0 01 00 40"
	t.Run("type", func(t *testing.T) { requireViolation(t, frame(t, 1, 2, poison), "frame has the type 1, not 0") })
	t.Run("offset into it", func(t *testing.T) {
		requireViolation(t, frame(t, 0, 3, poison), "undecodable AMQP from the peer: frame")
	})
	t.Run("offset before it", func(t *testing.T) { requireIgnored(t, frame(t, 0, 3, "00 53 17 45"+poison)) })
	t.Run("offset behind it", func(t *testing.T) { requireIgnored(t, frame(t, 0, 8, poison)) }) // an empty frame
}

// The credit of a flow is optional. Without it the link keeps its credit.
func TestAFlowWithoutCreditIsHarmless(t *testing.T) {
	afterFrame(t, frame(t, 0, 2, "00 53 13 c0 08 05 43 52 09 43 43 52 00"), func(_ *hub, r *running) {
		r.requireAlive()
		r.requireSends("more")
	})
}

// A disposition may name only deliveries that were sent.
func TestAnEndlessDispositionEndsTheSession(t *testing.T) {
	requireViolation(t, frame(t, 0, 2, "00 53 15 c0 0d 05 41 43 70 ff ff ff ff 41 00 53 24 45"),
		"disposition.last is 4294967295, which comes before first, 0")
}

// The numbers of deliveries wrap behind the last one.
func TestTheLastDeliveryIDIsOneLikeOthers(t *testing.T) {
	last := frame(t, 0, 2, "00 53 14 c0 0d 05 52 01 70 ff ff ff ff a0 01 74 43 41 00 53 75 a0 01 78")
	afterFrame(t, last, func(h *hub, r *running) {
		first := frame(t, 0, 2, transferred+"00 53 75 a0 01 79")
		require.Equal(t, 1, h.SendRaw("dev-1", first))
		r.requireAlive()
		r.requireSends("more")
		require.Equal(t, []string{"x", "y"}, r.sink.Bodies())
	})
}

// An idle time-out of a millisecond does not cause a flood of keep-alives.
func TestAShortIdleTimeoutCausesNoFlood(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		beats := 0
		over := make(chan struct{})
		_, err := amqp.New(&amqp.Options{OperationTimeout: 10 * time.Second, Network: between(func(far net.Conn) {
			defer close(over)
			hello(far, wire.ProtocolAMQP)
			say(far, 0, &wire.Open{ContainerID: "h", MaxFrameSize: 512, ChannelMax: 9, IdleTimeout: wire.Some(uint32(1))})
			for {
				head := make([]byte, 8)
				if _, err := io.ReadFull(far, head); err != nil {
					return
				}
				n := binary.BigEndian.Uint32(head)
				if n == 8 {
					beats++
				}
				_, _ = io.ReadFull(far, make([]byte, n-8))
			}
		})}).Dial(t.Context(), &transport.Config{Creds: &transport.Credentials{Host: "h",
			DeviceID: "d", Token: func(context.Context) (transport.Token, error) {
				return transport.Token{Text: transport.Hide("x")}, nil
			}}})
		require.Equal(t, transport.Timeout, transport.KindOf(err), "%v", err)
		<-over
		require.InDelta(t, 20, beats, 2, "keep-alives in 10 s")
	})
}

// A client connects again after a violation, as its policy says.
func TestAClientOutlivesAViolation(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		c, err := device.New(h.CredsWith(t, ""), amqp.New(h.options()), nil)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("x")}))
		require.Equal(t, 1, h.SendRaw("dev-1", frame(t, 0, 2, "00 53 15 c0 0d 05 41 43 70 ff ff ff ff 41 00 53 24 45")))
		synctest.Wait()
		require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("y")}))
		require.EqualValues(t, 2, h.dials.Load())
	})
}
