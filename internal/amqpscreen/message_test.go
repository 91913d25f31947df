package amqpscreen

import (
	"bytes"
	"strings"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/amqpscreen/screentest"
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

// They are valid, and the library fails to decode them.
func TestTheLibraryCannotDecode(t *testing.T) {
	for name, b := range screentest.Undecoded() {
		_, err := wire.DecodeMessage(b)
		if name != "address" && name != "reply address, a list" && name != "address, of a described" {
			require.NoError(t, err, name)
		}
		require.Error(t, new(amqp.Message).UnmarshalBinary(b), name)
		require.Error(t, checkMessage(b), name)
	}
}

// incomingTransfer is a transfer of the peer.
type incomingTransfer struct {
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
		sent   []incomingTransfer // the last one is refused
		reason string
	}{
		"without its end": {[]incomingTransfer{{delivery(7, true), good[:5]}, {delivery(8, false), good}},
			"transfer.delivery-id is 8 before the end of delivery 7"},
		"out of sequence": {[]incomingTransfer{{delivery(7, false), good}, {delivery(9, false), good}},
			"transfer.delivery-id is 9, not 8"},
		"without id": {[]incomingTransfer{{rest, good}}, "transfer.delivery-id is missing"},
		"without tag": {[]incomingTransfer{{&wire.Transfer{Handle: 11, DeliveryID: wire.Some(uint32(1)),
			MessageFormat: wire.Some(uint32(0))}, good}},
			"transfer.delivery-tag is missing"},
		"without format": {[]incomingTransfer{{&wire.Transfer{Handle: 11, DeliveryID: wire.Some(uint32(1)),
			DeliveryTag: []byte{1}},
			good}},
			"transfer.message-format is missing"},
		"a long tag": {[]incomingTransfer{{&wire.Transfer{Handle: 11, DeliveryTag: make([]byte, 33)}, good}},
			"transfer.delivery-tag has the length 33, more than 32"},
		"resumed": {[]incomingTransfer{{&wire.Transfer{Handle: 11, DeliveryID: wire.Some(uint32(1)), Resume: true}, good}},
			"transfer.resume is set"},
		"on no link": {[]incomingTransfer{{&wire.Transfer{Handle: 12}, good}},
			"transfer.handle is 12, to which no link is attached"},
		"on a sending link": {[]incomingTransfer{{&wire.Transfer{Handle: 10}, good}},
			"transfer.handle is 10, that of a link on which the peer does not send"},
		"without credit": {[]incomingTransfer{{delivery(1, false), good}, {delivery(2, false), good},
			{delivery(3, false), good},
			{delivery(4, false), good}, {delivery(5, false), good}, {delivery(6, false), good}},
			"that of a link without credit"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestScreen(t)
			last := len(c.sent) - 1
			for _, x := range c.sent[:last] {
				_, err := s.receive(encode(t, 1, x.p, x.payload))
				require.NoError(t, err)
			}
			s.refuses(encode(t, 1, c.sent[last].p, c.sent[last].payload), c.reason)
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
		"an address that is a number": {screentest.Undecoded()["address"],
			"unsupported AMQP from the peer: message.properties.to has a type other than string"},
		"a char": {screentest.Undecoded()["char"],
			"unsupported AMQP from the peer: message.amqp-value holds a decimal, a char"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, parts := range [][][]byte{{c.message}, {c.message[:1], c.message[1:]}} {
				s := newTestScreen(t)
				got := s.message(7, parts...)
				require.Zero(t, s.partial)
				if c.reason == "" {
					require.Equal(t, c.message, got)
				} else {
					m := new(amqp.Message)
					require.NoError(t, m.UnmarshalBinary(got))
					require.ErrorContains(t, ReplacedMessage(m), c.reason)
					require.ErrorIs(t, ReplacedMessage(m), transport.ErrViolation)
				}
				require.Equal(t, good, s.message(8, good), "the next one")
			}
		})
	}
}

// A message of the peer that has the annotations of a stand-in is rejected with a valid condition.
func TestAPeersStandInIsRejected(t *testing.T) {
	for _, condition := range []any{nil, "", "x", 1} {
		bad := ReplacedMessage(&amqp.Message{Annotations: amqp.Annotations{standInKey: "text", conditionKey: condition}})
		require.Equal(t, amqp.ErrCondDecodeError, bad.Condition)
	}
	require.Nil(t, ReplacedMessage(&amqp.Message{Annotations: amqp.Annotations{conditionKey: "x"}}))
}

// An aborted message is forgotten.
func TestAnAbortedMessageIsForgotten(t *testing.T) {
	s := newTestScreen(t)
	out, err := s.receive(encode(t, 1, delivery(7, true), poison))
	require.NoError(t, err)
	require.Empty(t, out, "it is held back")
	out, err = s.receive(encode(t, 1, &wire.Transfer{Handle: 11, Aborted: true}, nil))
	require.NoError(t, err)
	require.Equal(t, append(encode(t, 1, delivery(7, true), nil),
		encode(t, 1, &wire.Transfer{Handle: 11, Aborted: true}, nil)...), out)
	require.Zero(t, s.partial)
	s.passes(1, delivery(8, false), goodMessage(t)...)
}

// message receives a message in one transfer for each part, and returns what the library gets.
func (s *testScreen) message(id uint32, parts ...[]byte) (got []byte) {
	var all []byte
	for i, payload := range parts {
		p := &wire.Transfer{Handle: 11}
		if i == 0 {
			p = delivery(id, false)
		}
		p.More = i < len(parts)-1
		out, err := s.receive(encode(s.t, 1, p, payload))
		require.NoError(s.t, err)
		all = append(all, out...)
	}
	for i := range parts {
		f, n, err := wire.Split(all, MaxFrame)
		require.NoError(s.t, err)
		p, payload, err := f.Performative()
		require.NoError(s.t, err)
		want := &wire.Transfer{Handle: 11}
		if i == 0 {
			want = delivery(id, false)
		}
		want.More = i < len(parts)-1
		require.Equal(s.t, want, p, "only the payload is replaced")
		got = append(got, payload...)
		all = all[n:]
	}
	require.Empty(s.t, all)
	return got
}

// Incomplete messages do not fill the memory, neither one nor many. A message beyond the limits is
// replaced.
func TestIncompleteMessagesAreBounded(t *testing.T) {
	s := newTestScreen(t)
	part := make([]byte, MaxFrame-100)
	frames := 0
	for sent, more := 0, true; more; {
		p := &wire.Transfer{Handle: 11}
		if sent == 0 {
			p = delivery(7, false)
		}
		sent += len(part)
		more = sent < 2*maxMessage
		p.More = more
		out, err := s.receive(encode(t, 1, p, part))
		require.NoError(t, err)
		frames += count(t, out) - 1
		if sent > maxMessage {
			require.Zero(t, frames, "transfers that are held back")
			require.Zero(t, s.partial)
		} else {
			require.Equal(t, sent, s.partial)
		}
		if !more {
			bad := ReplacedMessage(only(t, out))
			require.ErrorContains(t, bad, "unsupported AMQP from the peer: message has more than 16777216 bytes")
			require.Equal(t, amqp.ErrCondMessageSizeExceeded, bad.Condition)
		}
	}
	require.Equal(t, goodMessage(t), s.message(8, goodMessage(t)), "the next one")

	s = newTestScreen(t)
	replaced := 0
	for link := range uint32(1000) {
		name := strings.Repeat("i", int(link)+1)
		s.sends(1, &wire.Attach{Name: name, Handle: 2 + link, Role: wire.RoleReceiver})
		s.passes(1, &wire.Attach{Name: name, Handle: 100 + link, Role: wire.RoleSender, Source: &wire.Source{}})
		s.sends(1, &wire.Flow{Handle: wire.Some(2 + link), DeliveryCount: wire.Some(uint32(0)),
			LinkCredit: wire.Some(uint32(5))})
		first := delivery(link, true)
		first.Handle = 100 + link
		_, err := s.receive(encode(t, 1, first, part))
		require.NoError(t, err)
	}
	require.InDelta(t, maxPartial, s.partial, MaxFrame)
	for link := range uint32(1000) {
		out, err := s.receive(encode(t, 1, &wire.Transfer{Handle: 100 + link}, nil))
		require.NoError(t, err)
		if m := only(t, out); ReplacedMessage(m).Condition == amqp.ErrCondResourceLimitExceeded {
			require.ErrorContains(t, ReplacedMessage(m), "message is one of several incomplete ones")
			replaced++
		}
	}
	require.Equal(t, 1000-maxPartial/len(part), replaced)
	require.Zero(t, s.partial)
}

// only returns the message in the frames of b.
func only(t testing.TB, b []byte) *amqp.Message {
	t.Helper()
	var all []byte
	for len(b) > 0 {
		f, n, err := wire.Split(b, MaxFrame)
		require.NoError(t, err)
		_, payload, err := f.Performative()
		require.NoError(t, err)
		all, b = append(all, payload...), b[n:]
	}
	m := new(amqp.Message)
	require.NoError(t, m.UnmarshalBinary(all))
	return m
}

// count returns the number of frames in b.
func count(t testing.TB, b []byte) (frames int) {
	t.Helper()
	for ; len(b) > 0; frames++ {
		_, n, err := wire.Split(b, MaxFrame)
		require.NoError(t, err)
		b = b[n:]
	}
	return frames
}

// The library would end a receiving link for a message larger than the max-message-size that the
// peer sent, even for a stand-in.
func TestTheMaxMessageSizeOfThePeerIsIgnored(t *testing.T) {
	s := newTestScreen(t)
	s.sends(1, &wire.Attach{Name: "in 2", Handle: 2, Role: wire.RoleReceiver})
	got := s.rewritten(encode(t, 1, &wire.Attach{Name: "in 2", Handle: 12, Role: wire.RoleSender, Source: &wire.Source{},
		MaxMessageSize: 10}, nil)).(*wire.Attach)
	require.Zero(t, got.MaxMessageSize)
	s.sends(1, &wire.Attach{Name: "out 2", Handle: 3, Role: wire.RoleSender})
	s.passes(1, &wire.Attach{Name: "out 2", Handle: 13, Role: wire.RoleReceiver, Target: &wire.Target{},
		MaxMessageSize: 10})
}

// A message larger than the max-message-size that this side sent is replaced.
func TestTheMaxMessageSizeOfALinkHolds(t *testing.T) {
	s := newTestScreen(t)
	s.sends(1, &wire.Attach{Name: "small", Handle: 2, Role: wire.RoleReceiver, MaxMessageSize: 100})
	s.passes(1, &wire.Attach{Name: "small", Handle: 12, Role: wire.RoleSender, Source: &wire.Source{}})
	s.sends(1, &wire.Flow{Handle: wire.Some(uint32(2)), LinkCredit: wire.Some(uint32(5)),
		DeliveryCount: wire.Some(uint32(0))})
	large := delivery(0, false)
	large.Handle = 12
	out, err := s.receive(encode(t, 1, large, make([]byte, 101)))
	require.NoError(t, err)
	require.ErrorContains(t, ReplacedMessage(only(t, out)), "message has more than 100 bytes")
}
