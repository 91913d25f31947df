package amqpclient

import (
	"encoding/binary"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/scrub"
)

// inFrame is a frame of the peer whose fields were checked.
type inFrame struct {
	*composite // nil: the frame is empty
	channel    uint16
	body       []byte
	all        [maxFields]item
	payload    []byte // of a transfer
}

// parse decodes and checks a frame.
func (f *inFrame) parse(b []byte, kind byte) *Violation {
	f.composite = nil
	head := int(b[4]) * 4
	switch {
	case head < wire.HeaderSize || head > len(b):
		return broken("frame", "has the data offset %d, of %d bytes", head, len(b))
	case b[5] != kind:
		return broken("frame", "has the type %d, not %d", b[5], kind)
	case head == len(b):
		return nil // a keep-alive
	}
	f.channel, f.body = binary.BigEndian.Uint16(b[6:]), b[head:]
	w := wire.NewWalker(f.body, maxItems)
	code, fields, count, err := w.Open()
	if err != nil {
		return undecodable("frame", err)
	}
	var c *composite
	for _, p := range performatives {
		if p.code == code && (code >= codeMechanisms) == (kind == wire.FrameSASL) {
			c = p
		}
	}
	if c == nil {
		return misplaced(code)
	}
	f.payload = w.Rest()
	if bad := c.check(&fields, count, f.body[:len(f.body)-len(f.payload)], f.all[:]); bad != nil {
		return bad
	}
	if code != codeTransfer && len(f.payload) > 0 {
		return broken(c.name, "has %d bytes behind it", len(f.payload))
	}
	f.composite = c
	return nil
}

// misplaced returns the violation for a performative that must not come here.
func misplaced(code uint64) *Violation {
	return broken("frame", "has the performative 0x%02x, which must not come here", code)
}

// condition returns the error in a field as that of what has ended. The error's info is not used.
func (f *inFrame) condition(what string, field int) *ConditionError {
	c := &ConditionError{What: what}
	if f.null(field) {
		return c
	}
	w := wire.NewWalker(f.raw(field), maxItems)
	_, fields, count, _ := w.Open() // the check has excluded errors
	for i, to := range []*string{&c.Condition, &c.Description} {
		if i < count {
			v, _ := fields.Next()
			*to = scrub.Peer(string(v.Raw[len(v.Raw)-v.Length:]))
		}
	}
	return c
}

// raw returns the encoding of a field.
func (f *inFrame) raw(i int) []byte { return f.body[f.all[i].start:f.all[i].end] }

// null reports whether a field is null or missing.
func (f *inFrame) null(i int) bool { return f.all[i].types == wire.IsNull }

// uint32 returns the number in a field, 0 for none.
func (f *inFrame) uint32(i int) uint32 { return uint32(f.all[i].number) }

// isTrue returns the boolean in a field, false for none.
func (f *inFrame) isTrue(i int) bool { return f.all[i].number != 0 }

// text returns the text or binary in a field.
func (f *inFrame) text(i int) []byte {
	raw := f.raw(i)
	if raw[0]&0x10 != 0 { // four bytes of length
		return raw[5:]
	}
	return raw[2:]
}

// broken returns the violation for a field that breaks the protocol.
func (f *inFrame) broken(i int, format string, args ...any) *Violation {
	return broken(f.name+"."+f.composite.fields[i].name, format, args...)
}

// unsupported returns the violation for a field whose legal value is not supported.
func (f *inFrame) unsupported(i int, format string, args ...any) *Violation {
	return unsupported(f.name+"."+f.composite.fields[i].name, format, args...)
}
