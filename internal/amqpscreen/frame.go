package amqpscreen

import (
	"encoding/binary"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// inFrame is a frame of the peer whose fields were checked.
type inFrame struct {
	*composite
	channel uint16
	body    []byte
	all     [maxFields]item
	count   int    // fields present in the frame
	payload []byte // of a transfer

	changed uint16 // a bit for each replaced field: true for a boolean, else the number in all
	before  []byte // frames that the library gets before this one
}

// null reports whether a field is null or missing.
func (f *inFrame) null(i int) bool { return f.all[i].types == wire.IsNull }

// uint32 returns the number in a field, 0 for none.
func (f *inFrame) uint32(i int) uint32 { return uint32(f.all[i].number) }

// isTrue returns the boolean in a field, false for none.
func (f *inFrame) isTrue(i int) bool { return f.all[i].number != 0 }

// text returns the text or binary in a field.
func (f *inFrame) text(i int) []byte {
	raw := f.body[f.all[i].start:f.all[i].end]
	if raw[0]&0x10 != 0 { // four bytes of length
		return raw[5:]
	}
	return raw[2:]
}

// set replaces a field's value by a number of its type, or by true.
func (f *inFrame) set(i int, number uint32) {
	f.all[i].number = uint64(number)
	f.changed |= 1 << i
	f.count = max(f.count, i+1)
}

// rewritten returns the frame with its replacements.
func (f *inFrame) rewritten() []byte {
	b := make([]byte, 0, len(f.body)+64)
	b = append(b, 0, 0, 0, 0, 2, wire.FrameAMQP, byte(f.channel>>8), byte(f.channel))
	b = append(b, 0, 0x53, byte(f.code), 0xd0, 0, 0, 0, 0, 0, 0, 0, byte(f.count))
	if f.code >= codeMechanisms {
		b[5] = wire.FrameSASL
	}
	const list = 12
	for i := range f.count {
		v := &f.all[i]
		switch {
		case f.changed&(1<<i) == 0 && v.start < v.end:
			b = append(b, f.body[v.start:v.end]...)
		case f.changed&(1<<i) == 0:
			b = append(b, 0x40)
		case f.composite.fields[i].types == wire.IsBoolean:
			b = append(b, 0x41)
		case f.composite.fields[i].types == wire.IsUbyte:
			b = append(b, 0x50, byte(v.number))
		case f.composite.fields[i].types == wire.IsUlong:
			b = binary.BigEndian.AppendUint64(append(b, 0x80), v.number)
		default:
			b = binary.BigEndian.AppendUint32(append(b, 0x70), uint32(v.number))
		}
	}
	binary.BigEndian.PutUint32(b[list:], uint32(len(b)-list-4))
	b = append(b, f.payload...)
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}

// broken returns the violation for a field that breaks the protocol.
func (f *inFrame) broken(i int, format string, args ...any) *Violation {
	return broken(f.name+"."+f.composite.fields[i].name, format, args...)
}

// unsupported returns the violation for a field whose legal value is not supported.
func (f *inFrame) unsupported(i int, format string, args ...any) *Violation {
	return unsupported(f.name+"."+f.composite.fields[i].name, format, args...)
}
