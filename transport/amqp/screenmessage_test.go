package amqp

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/transport"
)

// poison is a message with an annotation whose key is a list.
var poison = []byte{0, 0x53, 0x72, 0xc1, 4, 2, 0xc0, 1, 0, 0x40, 0, 0x53, 0x75, 0xa0, 1, 'x'}

// deepPoison has such a key one level down, in a described value.
var deepPoison = []byte{0, 0x53, 0x77, 0xc1, 10, 2, 0x54, 1, 0xc1, 5, 2, 0, 0xa3, 0, 0x45, 0x40}

// The library panics for the messages that the screen replaces.
func TestTheLibraryPanics(t *testing.T) {
	require.Panics(t, func() { _ = new(amqp.Message).UnmarshalBinary(poison) })
	require.Panics(t, func() { _ = new(amqp.Message).UnmarshalBinary(deepPoison) })
}

// said is a transfer of the peer.
type said struct {
	p       *wire.Transfer
	payload []byte
}

// goodMessage has annotations with values at several depths.
func goodMessage(t testing.TB) []byte {
	b, err := wire.AppendMessage(nil, &wire.Message{
		MessageAnnotations: wire.Map{{Key: wire.Symbol("k"), Value: wire.List{nil, wire.Map{{Key: "a", Value: uint32(1)}}}}},
		Data:               [][]byte{[]byte("hello")},
	})
	require.NoError(t, err)
	return b
}

// A transfer that contradicts earlier frames ends the connection.
func TestTransfersAreChecked(t *testing.T) {
	good := goodMessage(t)
	rest := &wire.Transfer{Handle: 11}
	for name, c := range map[string]struct {
		said   []said // the last one is refused
		reason string
	}{
		"without its end": {[]said{{delivery(7, true), good[:5]}, {delivery(8, false), good}},
			"transfer.delivery-id is 8 before the end of delivery 7"},
		"out of sequence": {[]said{{delivery(7, false), good}, {delivery(9, false), good}},
			"transfer.delivery-id is 9, not 8"},
		"without id": {[]said{{rest, good}}, "transfer.delivery-id is missing"},
		"without tag": {[]said{{&wire.Transfer{Handle: 11, DeliveryID: wire.Some(uint32(1)),
			MessageFormat: wire.Some(uint32(0))}, good}},
			"transfer.delivery-tag is missing"},
		"without format": {[]said{{&wire.Transfer{Handle: 11, DeliveryID: wire.Some(uint32(1)), DeliveryTag: []byte{1}},
			good}},
			"transfer.message-format is missing"},
		"a long tag": {[]said{{&wire.Transfer{Handle: 11, DeliveryTag: make([]byte, 33)}, good}},
			"transfer.delivery-tag has the length 33, more than 32"},
		"resumed": {[]said{{&wire.Transfer{Handle: 11, DeliveryID: wire.Some(uint32(1)), Resume: true}, good}},
			"transfer.resume is set"},
		"on no link": {[]said{{&wire.Transfer{Handle: 12}, good}},
			"transfer.handle is 12, to which no link is attached"},
		"on a sending link": {[]said{{&wire.Transfer{Handle: 10}, good}},
			"transfer.handle is 10, that of a link on which the peer does not send"},
		"without credit": {[]said{{delivery(1, false), good}, {delivery(2, false), good}, {delivery(3, false), good},
			{delivery(4, false), good}, {delivery(5, false), good}, {delivery(6, false), good}},
			"that of a link without credit"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTalk(t)
			last := len(c.said) - 1
			for _, x := range c.said[:last] {
				_, err := s.hear(encode(t, 1, x.p, x.payload))
				require.NoError(t, err)
			}
			s.bad(encode(t, 1, c.said[last].p, c.said[last].payload), c.reason)
		})
	}
}

// A message that is harmful to the library is replaced by one that says why. The connection stays.
func TestABrokenMessageIsReplaced(t *testing.T) {
	good := goodMessage(t)
	for name, c := range map[string]struct {
		message []byte
		reason  string // empty: the message is valid
	}{
		"sound":                  {good, ""},
		"a char, as it may be":   {unhex(t, "00 53 77 73 00 00 00 41"), ""},
		"a list for a key":       {poison, "message: map with a key that is no simple value"},
		"a list for a key, deep": {deepPoison, "message: map with a key that is no simple value"},
		"cut short":              {good[:len(good)-1], "cut short"},
		"no section":             {[]byte{0x40}, "message has something that is not a section"},
		"sections twice":         {append(bytes.Clone(good), good...), "comes behind data"},
		"two bodies":             {append(bytes.Clone(good), 0, 0x53, 0x77, 0x40), "message.amqp-value comes behind data"},
		"a wrong section":        {unhex(t, "00 53 75 41"), "message.data has a wrong type"},
		"a wrong field":          {unhex(t, "00 53 70 c0 02 01 44"), "message.header.durable has a wrong type"},
		"a wrong property name": {unhex(t, "00 53 74 c1 03 02 44 41"),
			"message.application-properties has a key of a wrong type"},
		"nested without end": {append(unhex(t, "00 53 77"), bytes.Repeat([]byte{0, 0x44}, 40)...), "deep"},
		"much in little": {append(unhex(t, "00 53 77 f0 00 00 00 05 7f ff ff ff 43"), 0),
			"too many items"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, parts := range [][][]byte{{c.message}, {c.message[:1], c.message[1:]}} {
				s := newTalk(t)
				got := s.message(7, parts...)
				require.Zero(t, s.partial)
				if c.reason == "" {
					require.Equal(t, c.message, got)
				} else {
					m := new(amqp.Message)
					require.NoError(t, m.UnmarshalBinary(got))
					require.ErrorContains(t, brokenMessage(m), c.reason)
					require.ErrorIs(t, brokenMessage(m), transport.ErrViolation)
				}
				require.Equal(t, good, s.message(8, good), "the next one")
			}
		})
	}
}

// An aborted message is forgotten.
func TestAnAbortedMessageIsForgotten(t *testing.T) {
	s := newTalk(t)
	_, err := s.hear(encode(t, 1, delivery(7, true), poison))
	require.NoError(t, err)
	s.good(1, &wire.Transfer{Handle: 11, Aborted: true})
	require.Zero(t, s.partial)
	s.good(1, delivery(8, false), goodMessage(t)...)
}

// message receives a message in one transfer for each part, and returns what the library gets.
func (s *talk) message(id uint32, parts ...[]byte) (got []byte) {
	for i, payload := range parts {
		p := &wire.Transfer{Handle: 11}
		if i == 0 {
			p = delivery(id, false)
		}
		p.More = i < len(parts)-1
		out, err := s.hear(encode(s.t, 1, p, payload))
		require.NoError(s.t, err)
		f, _, err := wire.Split(out, math.MaxUint32)
		require.NoError(s.t, err)
		passed, payload, err := f.Performative()
		require.NoError(s.t, err)
		require.Equal(s.t, p, passed, "only the payload is replaced")
		require.True(s.t, !p.More || len(payload) == 0, "the library gets the payload with the last transfer")
		got = append(got, payload...)
	}
	return got
}

// Incomplete messages do not fill the memory, neither one nor many.
func TestIncompleteMessagesAreBounded(t *testing.T) {
	s := newTalk(t)
	b := encode(t, 1, delivery(7, true), make([]byte, maxFrame-100))
	for sent := 0; ; sent += maxFrame - 100 {
		if _, err := s.hear(b); err != nil {
			require.ErrorContains(t, err, "unsupported AMQP from the peer: message has ")
			require.InDelta(t, maxMessage, sent, maxFrame)
			break
		}
		require.LessOrEqual(t, sent, maxMessage)
	}

	s = newTalk(t)
	sent, refused := 0, false
	for link := range uint32(2000) {
		s.saying(1, &wire.Attach{Name: strings.Repeat("i", int(link)+1), Handle: 2 + link, Role: wire.RoleReceiver})
		s.good(1, &wire.Attach{Name: strings.Repeat("i", int(link)+1), Handle: 100 + link, Role: wire.RoleSender,
			Source: &wire.Source{}})
		s.saying(1, &wire.Flow{Handle: wire.Some(2 + link), DeliveryCount: wire.Some(uint32(0)),
			LinkCredit: wire.Some(uint32(5))})
		part := delivery(link, true)
		part.Handle = 100 + link
		payload := make([]byte, maxFrame-100)
		if _, err := s.hear(encode(t, 1, part, payload)); err != nil {
			require.ErrorContains(t, err, "message is one of several incomplete ones")
			refused = true
			break
		}
		sent += len(payload)
	}
	require.True(t, refused)
	require.InDelta(t, maxPartial, sent, maxFrame)
}

// A message must not exceed the max-message-size that this side sent.
func TestTheMaxMessageSizeOfALinkHolds(t *testing.T) {
	s := newTalk(t)
	s.saying(1, &wire.Attach{Name: "small", Handle: 2, Role: wire.RoleReceiver, MaxMessageSize: 100})
	s.good(1, &wire.Attach{Name: "small", Handle: 12, Role: wire.RoleSender, Source: &wire.Source{}})
	s.saying(1, &wire.Flow{Handle: wire.Some(uint32(2)), LinkCredit: wire.Some(uint32(5)),
		DeliveryCount: wire.Some(uint32(0))})
	large := delivery(0, false)
	large.Handle = 12
	s.bad(encode(t, 1, large, make([]byte, 101)), "message has 101 bytes, more than 100")
}
