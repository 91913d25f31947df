package mqtt

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/eclipse/paho.mqtt.golang/packets"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// events records what the framer reports.
type events struct {
	connacks []byte
	pubacks  []uint16
	subacks  [][]byte
	pongs    int
}

func (e *events) connack(code byte) error {
	e.connacks = append(e.connacks, code)
	if code != 0 {
		return &ConnackError{Code: code}
	}
	return nil
}

func (e *events) pingresp() { e.pongs++ }

func (e *events) puback(id uint16) error { e.pubacks = append(e.pubacks, id); return nil }

// suback accepts a SUBACK for one filter.
func (e *events) suback(_ uint16, codes []byte) error {
	e.subacks = append(e.subacks, bytes.Clone(codes))
	if len(codes) != 1 {
		return violation("codes")
	}
	return nil
}

// stream returns more behind a CONNACK.
func stream(more ...byte) []byte { return append([]byte{typeConnack << 4, 2, 0, 0}, more...) }

func TestTheFramerPassesWhatAHubMaySend(t *testing.T) {
	for name, in := range map[string][]byte{
		"nothing more":                       stream(),
		"session present":                    {typeConnack << 4, 2, 1, 0},
		"puback":                             stream(0x40, 2, 0, 7),
		"suback":                             stream(0x90, 3, 0, 7, 1),
		"pong":                               stream(0xD0, 0),
		"DISCONNECT":                         stream(0xE0, 0),
		"publish without body":               stream(0x30, 3, 0, 1, 'a'),
		"publish with QoS 1":                 stream(0x32, 6, 0, 1, 'a', 0, 1, 'x'),
		"publish, QoS 1, no body":            stream(0x32, 5, 0, 1, 'a', 0, 1),
		"publish again and retained":         stream(0x3B, 6, 0, 1, 'a', 0, 1, 'x'),
		"a length of two bytes":              stream(append([]byte{0x30, 0xE8, 0x07, 0, 1, 'a'}, make([]byte, 1000-3)...)...),
		"a length in more bytes than needed": stream(0x40, 0x82, 0, 0, 7),
		"the largest": stream(append([]byte{0x30, 0x80, 0x80, 0x40, 0, 1, 'a'},
			make([]byte, maxIncoming-3)...)...),
	} {
		t.Run(name, func(t *testing.T) {
			f := framer{sink: new(events)}
			pass, err := f.scan(bytes.Clone(in))
			require.NoError(t, err)
			if f.kind == typePuback {
				in = stream() // the framer drops a PUBACK
			}
			require.Equal(t, masked(in), pass)
			require.Equal(t, inHeader, f.state, "between packets")
		})
	}
}

// masked returns what the library gets of in: in a SUBACK behind the CONNACK its own packet id.
func masked(in []byte) []byte {
	out := bytes.Clone(in)
	if len(out) > 7 && out[4]>>4 == typeSuback {
		out[6], out[7] = out[6]^subIDMask[0], out[7]^subIDMask[1]
	}
	return out
}

func TestTheFramerStopsWhatAHubMustNotSend(t *testing.T) {
	for name, c := range map[string]struct {
		in   []byte
		pass int
	}{
		"no CONNACK first":              {[]byte{0xD0, 0}, 0},
		"a CONNACK that is too long":    {[]byte{0x20, 3, 0, 0, 0}, 1},
		"a CONNACK that is too short":   {[]byte{0x20, 1, 0}, 1},
		"reserved CONNACK flags":        {[]byte{0x20, 2, 2, 0}, 3},
		"a refusal":                     {[]byte{0x20, 2, 0, 77}, 3},
		"a second CONNACK":              {stream(0x20, 2, 0, 0), 4},
		"HTTP":                          {[]byte("HTTP/1.1 400 Bad Request"), 0},
		"type 0":                        {stream(0, 0), 4},
		"CONNECT":                       {stream(0x10, 0), 4},
		"PUBREC":                        {stream(0x50, 2, 0, 1), 4},
		"PUBREL":                        {stream(0x62, 2, 0, 1), 4},
		"PUBCOMP":                       {stream(0x70, 2, 0, 1), 4},
		"SUBSCRIBE":                     {stream(0x82, 2, 0, 1), 4},
		"UNSUBSCRIBE":                   {stream(0xA2, 2, 0, 1), 4},
		"UNSUBACK":                      {stream(0xB0, 2, 0, 1), 4},
		"PINGREQ":                       {stream(0xC0, 0), 4},
		"type 15":                       {stream(0xF0, 0), 4},
		"PUBACK with flags":             {stream(0x42, 2, 0, 1), 4},
		"PUBACK too long":               {stream(0x40, 3, 0, 1, 0), 4},
		"SUBACK without codes":          {stream(0x90, 2, 0, 1), 5},
		"SUBACK with too many codes":    {stream(0x90, 4, 0, 1, 0, 0), 9},
		"SUBACK with far too many":      {stream(0x90, 100), 5},
		"PINGRESP with a body":          {stream(0xD0, 1, 0), 5},
		"QoS 2":                         {stream(0x34, 5, 0, 1, 'a', 0, 1), 4},
		"QoS 3":                         {stream(0x36, 5, 0, 1, 'a', 0, 1), 4},
		"PUBLISH too short":             {stream(0x30, 2, 0, 0), 5},
		"PUBLISH without topic":         {stream(0x30, 3, 0, 0, 0), 7},
		"topic longer than the packet":  {stream(0x30, 3, 0, 2, 'a'), 7},
		"no room for the id":            {stream(0x32, 4, 0, 1, 'a', 0), 7},
		"packet id 0":                   {stream(0x32, 5, 0, 1, 'a', 0, 0), 10},
		"a length over the cap":         {stream(0x30, 0x81, 0x80, 0x40), 7},
		"a length of five bytes":        {stream(0x30, 0x80, 0x80, 0x80, 0x80, 1), 8},
		"the largest length that there": {stream(0x30, 0xFF, 0xFF, 0xFF, 0x7F), 8},
	} {
		t.Run(name, func(t *testing.T) {
			f := framer{sink: new(events)}
			pass, err := f.scan(bytes.Clone(c.in))
			require.Error(t, err)
			require.Equal(t, masked(c.in)[:c.pass], pass)
		})
	}
}

// FuzzIncoming checks that no input panics, that the framer passes bytes unchanged, that the split
// into pieces makes no difference, and that the library can read what passes.
func FuzzIncoming(f *testing.F) {
	f.Add(stream(), uint64(1))
	f.Add(stream(0x40, 2, 0, 7, 0x90, 3, 0, 7, 1, 0xD0, 0, 0x32, 6, 0, 1, 'a', 0, 1, 'x'), uint64(2))
	f.Add(stream(0x30, 0xFF, 0xFF, 0xFF, 0x7F), uint64(3))
	f.Add([]byte("HTTP/1.1 400 Bad Request"), uint64(4))
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		whole, pieces := new(events), new(events)
		fw, fp := framer{sink: whole}, framer{sink: pieces}
		pass, err := fw.scan(bytes.Clone(in))
		require.LessOrEqual(t, len(pass), len(in))

		rng := rand.New(rand.NewPCG(seed, 1))
		var got []byte
		rest := bytes.Clone(in)
		var pieceErr error
		for len(rest) > 0 && pieceErr == nil {
			n := min(1+rng.IntN(8), len(rest))
			var ok []byte
			ok, pieceErr = fp.scan(rest[:n])
			got = append(got, ok...)
			rest = rest[n:]
		}
		require.True(t, bytes.Equal(pass, got))
		require.Equal(t, err, pieceErr)
		require.Equal(t, whole, pieces)

		// The passed bytes are whole packets that the library can read, and the beginning of one that is
		// incomplete.
		r := bytes.NewReader(pass)
		for r.Len() > 0 {
			p, readErr := packets.ReadPacket(r)
			if readErr != nil {
				require.Zero(t, r.Len(), "%v", readErr)
				require.True(t, err != nil || fw.state != inHeader)
				break
			}
			if _, ok := p.(*packets.PubackPacket); ok {
				t.Fatal("a PUBACK passed")
			}
			if s, ok := p.(*packets.SubackPacket); ok {
				require.Len(t, s.ReturnCodes, 1)
			}
			if c, ok := p.(*packets.ConnackPacket); ok {
				require.Zero(t, c.ReturnCode)
			}
		}
		if len(in) > 0 && in[0] != typeConnack<<4 {
			require.Empty(t, pass)
		}
	})
}

// Packets before a violation are handled.
func TestPacketsBeforeAViolationAreDelivered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		r, l := start(t, h, h.options())
		r.send("one")
		id := l.expect(typePublish).id()
		l.send(0x40, 2, byte(id>>8), byte(id), 0xF0, 0)
		err := <-r.ran
		require.Equal(t, []uint16{0}, r.sink.tags())
		_, ok := errors.AsType[wire.Violation](err)
		require.True(t, ok, "%v", err)
	})
}
