package engine

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// The operator of the broker sees in its log why the device leaves.
func TestAViolationIsToldWithItsReasonCode(t *testing.T) {
	for want, packets := range map[byte][][]byte{
		0x81: {{0, 0}, {0xd0, 0x80, 0}, packet(0xd0, "x"), packet(0x40, "\x00"), {0x36, 0},
			publish5(0x30, down, 0, "\x01\x01\x7f", "")},
		0x82: {packet(0x20, "\x00\x00", block("")), packet(0x50, "\x00\x01"), packet(0x90, "\xf0\x01\x00\x00"),
			publish5(0x30, "a/+", 0, "", ""), publish5(0x30, down, 0, "\x01\x01\x01\x01", "")},
		0x94: {publish5(0x30, down, 0, "\x23\x00\x01", "")},
		0x95: {{0x30, 0x80, 0x80, 0x80, 0x01}},
	} {
		for _, p := range packets {
			bubble(t, func(t *testing.T) {
				h := newHub(t)
				r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
				l.Send(p...)
				require.Equal(t, got{First: 0xe0, Body: []byte{want, 0}}, l.Expect(0xe0), "%x", p)
				r.requireLoss(t, transport.Network)
			})
		}
	}
}

// A peer that reads nothing does not keep the session.
func TestAViolationOfAPeerThatReadsNothingEndsTheSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		h.net.SetBuffer(16)
		r, l := start5(t, h, New(h.dial, fiveOptions(nil)), "")
		go r.send(strings.Repeat("x", 100))
		synctest.Wait()
		go func() { _, _ = l.Write([]byte{0, 0}) }()
		require.ErrorContains(t, r.requireLoss(t, transport.Network), "a type that does not exist")
	})
}

// A violation within the dial is told, too.
func TestAViolationWhileTheBirthWaitsIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		o := fiveOptions(nil)
		o.Dialect = &dialect.Topics{Telemetry: "t", Birth: &transport.Message{Topic: "b"}}
		_, _, _, _, err := dialed(t, New(h.dial, o), func() {
			l, _ := h.welcome5(0, "")
			l.Expect(0x32)
			l.Send(0, 0)
			require.Equal(t, []byte{0x81, 0}, l.Expect(0xe0).Body)
		})
		require.ErrorIs(t, err, transport.Protocol)
	})
}
