package amqpwire

import (
	"encoding/binary"
	"math"
)

// Fields appends a described map or list value by value. It writes the bytes that [AppendMessage]
// and [AppendFrame] write, and needs no memory of its own: a hub writes each event with it. Texts
// must be UTF-8 and symbols ASCII; it does not check them.
type Fields struct {
	b      []byte
	start  int
	count  int
	absent int // null values at the end of a list; those that stay there are not written
	list   bool
}

// BeginMessageAnnotations begins the annotations of a message: a map, whose keys are symbols.
func BeginMessageAnnotations(dst []byte) Fields { return begin(dst, codeMessageAnnotations, false) }

// BeginHeader begins the header of a message: a list in the order of [Header].
func BeginHeader(dst []byte) Fields { return begin(dst, codeHeader, true) }

// BeginProperties begins the properties of a message: a list in the order of [Properties].
func BeginProperties(dst []byte) Fields { return begin(dst, codeProperties, true) }

// BeginApplicationProperties begins the application properties of a message: a map, whose keys are
// strings.
func BeginApplicationProperties(dst []byte) Fields {
	return begin(dst, codeApplicationProperties, false)
}

// AppendData appends a data section.
func AppendData(dst, data []byte) []byte { return append(AppendDataHead(dst, len(data)), data...) }

// AppendDataHead appends what comes before the n bytes of a data section.
func AppendDataHead(dst []byte, n int) []byte {
	return appendSize(append(dst, codeDescribed, codeSmallUlong, codeData), n, codeBinary8, codeBinary32)
}

func begin(dst []byte, code byte, list bool) Fields {
	return Fields{b: append(dst, codeDescribed, codeSmallUlong, code, 0, 0, 0, 0, 0, 0, 0, 0, 0), start: len(dst) + 3,
		list: list}
}

// End returns the bytes with the map or list.
func (f *Fields) End() []byte {
	b, body := f.b, f.start+9
	size := len(b) - body
	small, large := byte(codeMap8), byte(codeMap32)
	if f.list {
		small, large = codeList8, codeList32
	}
	switch {
	case f.list && f.count == 0:
		return append(b[:f.start], codeList0)
	case f.count <= math.MaxUint8 && size+1 <= math.MaxUint8:
		copy(b[f.start:], []byte{small, byte(size + 1), byte(f.count)})
		return append(b[:f.start+3], b[body:]...)
	}
	b[f.start] = large
	binary.BigEndian.PutUint32(b[f.start+1:], uint32(size+4))
	binary.BigEndian.PutUint32(b[f.start+5:], uint32(f.count))
	return b
}

// value begins a value.
func (f *Fields) value() {
	for ; f.absent > 0; f.absent-- {
		f.b = append(f.b, codeNull)
		f.count++
	}
	f.count++
}

// Absent appends an absent field of a list.
func (f *Fields) Absent() { f.absent++ }

// Binary appends bytes.
func (f *Fields) Binary(v []byte) {
	f.value()
	f.b = append(appendSize(f.b, len(v), codeBinary8, codeBinary32), v...)
}

// String appends a string.
func (f *Fields) String(v string) {
	f.value()
	f.b = append(appendSize(f.b, len(v), codeString8, codeString32), v...)
}

// Symbol appends a symbol.
func (f *Fields) Symbol(v Symbol) {
	f.value()
	f.b = append(appendSize(f.b, len(v), codeSymbol8, codeSymbol32), v...)
}

func appendSize(dst []byte, n int, small, large byte) []byte {
	if n <= math.MaxUint8 {
		return append(dst, small, byte(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, large), uint32(n))
}

// Long appends an int64.
func (f *Fields) Long(v int64) {
	f.value()
	if math.MinInt8 <= v && v <= math.MaxInt8 {
		f.b = append(f.b, codeSmallLong, byte(v))
		return
	}
	f.b = binary.BigEndian.AppendUint64(append(f.b, codeLong), uint64(v))
}

// Timestamp appends a timestamp.
func (f *Fields) Timestamp(v Timestamp) {
	f.value()
	f.b = binary.BigEndian.AppendUint64(append(f.b, codeTimestamp), uint64(v))
}

// Uint appends a uint32.
func (f *Fields) Uint(v uint32) {
	f.value()
	switch {
	case v == 0:
		f.b = append(f.b, codeUint0)
	case v <= math.MaxUint8:
		f.b = append(f.b, codeSmallUint, byte(v))
	default:
		f.b = binary.BigEndian.AppendUint32(append(f.b, codeUint), v)
	}
}

// Bool appends a truth value.
func (f *Fields) Bool(v bool) {
	f.value()
	if v {
		f.b = append(f.b, codeTrue)
	} else {
		f.b = append(f.b, codeFalse)
	}
}

// AppendDelivery appends the frame of a whole delivery of format 0: that of a [Transfer] without
// more fields.
func AppendDelivery(dst []byte, channel uint16, handle, id uint32, tag []byte, settled bool, payload []byte) []byte {
	start := len(dst)
	head := TransferHead{Channel: channel, Handle: handle, ID: id, Tag: tag, Settled: settled}
	dst = append(head.Append(dst), payload...)
	EndFrame(dst[start:])
	return dst
}

// TransferHead is what the frame of a transfer says before its payload.
type TransferHead struct {
	Channel    uint16
	Handle, ID uint32
	Tag        []byte // at most 32 bytes
	Format     uint32
	Settled    bool
	More       bool // transfers of the delivery follow
	Continues  bool // it is not the first transfer of the delivery; it has a handle and More only
}

// MaxTransferHead is the most bytes that TransferHead.Append appends.
const MaxTransferHead = 80

// Append appends the frame without its payload, behind which the caller calls [EndFrame].
func (t *TransferHead) Append(dst []byte) []byte {
	f := begin(append(dst, 0, 0, 0, 0, 2, FrameAMQP, byte(t.Channel>>8), byte(t.Channel)), codeTransfer, true)
	f.Uint(t.Handle)
	if t.Continues {
		for range 4 {
			f.Absent()
		}
	} else {
		f.Uint(t.ID)
		f.Binary(t.Tag)
		f.Uint(t.Format)
		f.Bool(t.Settled)
	}
	if t.More {
		f.Bool(true)
	}
	return f.End()
}

// EndFrame sets the size of a frame, which is all of b.
func EndFrame(b []byte) { binary.BigEndian.PutUint32(b, uint32(len(b))) }
