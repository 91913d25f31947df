package amqp

import (
	"encoding/binary"
	"slices"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// valid generates a frame that a broker could send at this point.
func (p *fuzzPeer) valid() []byte {
	handle := uint32(0)
	if len(p.links) > 0 {
		handle = p.links[p.n(len(p.links))]
	}
	first, last := uint32(0), p.sent-1
	if p.sent > 8 {
		first = p.sent - 8
	}
	some := wire.Some[uint32]
	var m wire.Performative
	var payload []byte
	switch k := p.n(100); {
	case k < 30 && !p.partial && int32(p.credit-p.next) <= 0, k >= 85 && p.n(8) > 0:
		return []byte{0, 0, 0, 8, 2, 0, 0, 0}
	case k < 30:
		t := &wire.Transfer{Handle: p.receives, More: p.n(4) == 0, Settled: wire.Some(p.n(2) == 0), Aborted: p.n(20) == 0}
		if !p.partial {
			t.DeliveryID, t.DeliveryTag, t.MessageFormat = some(p.next), []byte{byte(p.n(9))}, some(0)
			p.next++
		}
		p.partial = t.More && !t.Aborted
		m, payload = t, p.message()
	case k < 55:
		f := &wire.Flow{NextIncomingID: some(p.sent), IncomingWindow: 1000, OutgoingWindow: 1000, Echo: p.n(4) == 0,
			Drain: p.n(8) == 0}
		if p.n(4) == 0 {
			f.NextIncomingID = wire.Opt[uint32]{}
		}
		if p.n(3) > 0 {
			f.Handle = some(handle)
			if p.n(4) > 0 {
				f.DeliveryCount = some(p.sent)
			}
			if p.n(4) > 0 {
				f.LinkCredit = some(uint32(p.n(50)))
			}
		}
		if p.n(5) == 0 {
			f.Properties = wire.Map{{Key: wire.Symbol("p"), Value: p.value(3)}}
		}
		m = f
	case k < 85:
		d := &wire.Disposition{Role: p.n(4) > 0, First: first + uint32(p.n(4)), Settled: p.n(4) > 0, State: p.state()}
		if p.n(2) == 0 {
			d.Last = some(last - uint32(p.n(3)))
		}
		m = d
	case k < 88:
		m = &wire.Attach{Name: "x", Handle: uint32(p.n(5)), Role: p.n(2) == 0, Source: &wire.Source{}, Target: &wire.Target{}}
	case k < 89:
		m = &wire.Detach{Handle: handle, Closed: p.n(2) == 0, Error: p.fault()}
	case k < 90 && p.n(4) == 0:
		m = &wire.End{Error: p.fault()}
	case k < 91 && p.n(4) == 0:
		m = &wire.Close{Error: p.fault()}
	case k < 94:
		m = &wire.Begin{RemoteChannel: wire.Some(uint16(p.n(3)))}
	case k < 96:
		return []byte{0, 0, 0, 8, 2, 0, 0, 0}
	case k < 98:
		m = &wire.Open{ContainerID: "again"}
	default:
		m = &wire.Outcome{}
	}
	b, err := wire.AppendFrame(nil, p.channel, m, payload)
	if err != nil {
		return nil
	}
	return b
}

func (p *fuzzPeer) fault() *wire.Error {
	if p.n(2) == 0 {
		return nil
	}
	return &wire.Error{Condition: "amqp:link:detach-forced", Info: wire.Map{{Key: wire.Symbol("x"), Value: p.value(3)}}}
}

func (p *fuzzPeer) state() wire.DeliveryState {
	switch p.n(6) {
	case 0:
		return &wire.Rejected{Error: p.fault()}
	case 1:
		return &wire.Released{}
	case 2:
		return &wire.Modified{MessageAnnotations: wire.Map{{Key: wire.Symbol("x"), Value: p.value(3)}}}
	case 3:
		return &wire.Received{}
	}
	return &wire.Accepted{}
}

// message generates a message of unusual values.
func (p *fuzzPeer) message() []byte {
	m := &wire.Message{}
	if p.n(2) == 0 {
		m.MessageAnnotations = wire.Map{{Key: wire.Symbol("x-opt-sequence-number"), Value: p.value(3)},
			{Key: wire.Symbol("iothub-enqueuedtime"), Value: p.value(3)}}
	}
	if p.n(2) == 0 {
		m.ApplicationProperties = wire.Map{{Key: "a", Value: p.value(0)}}
	}
	if p.n(2) == 0 {
		m.Properties = &wire.Properties{MessageID: "id", ContentType: "t"}
	}
	if p.n(2) == 0 {
		m.Data = [][]byte{[]byte("x")}
	} else {
		m.Value, m.HasValue = p.value(4), true
	}
	b, err := wire.AppendMessage(nil, m)
	if err != nil {
		return nil
	}
	if p.n(6) == 0 { // a part of the message
		b = b[:p.n(len(b)+1)]
	}
	return b
}

// value generates a value, nested at most this deep.
func (p *fuzzPeer) value(depth int) any {
	k := p.n(22)
	if depth == 0 {
		k = p.n(16)
	}
	switch k {
	case 0:
		return nil
	case 1:
		return p.n(2) == 0
	case 2:
		return uint8(p.random())
	case 3:
		return uint16(p.random())
	case 4, 5:
		return []uint32{0, 1, 255, 256, 1<<31 - 1, 1 << 31, 1<<32 - 1, p.random()}[p.n(8)]
	case 6:
		return []uint64{0, 1, 255, 1<<63 - 1, 1 << 63, 1<<64 - 1}[p.n(6)]
	case 7:
		return int32(p.random())
	case 8:
		return int64(p.random()) << 20
	case 9:
		return float64(p.random())
	case 10:
		return wire.Timestamp(uint64(p.random())<<32 | uint64(p.random()))
	case 11:
		return wire.UUID{1}
	case 12:
		return []byte("bytes")
	case 13:
		return "text"
	case 14:
		return wire.Symbol("symbol")
	case 15:
		return []any{wire.Char('c'), wire.Decimal32{}, wire.Decimal64{}, wire.Decimal128{}}[p.n(4)]
	case 16, 17:
		return wire.List{p.value(depth - 1), p.value(depth - 1)}
	case 18, 19:
		return wire.Map{{Key: p.value(depth - 1), Value: p.value(depth - 1)}}
	case 20:
		v := p.value(depth - 1)
		return wire.Array{v, v}
	}
	code := []any{uint64(0x24), uint64(0x1d), uint64(0x27), uint64(0x2b), uint64(0x70), uint64(0x110), uint64(1 << 40),
		wire.Symbol("amqp:accepted:list")}[p.n(8)]
	return &wire.Described{Descriptor: code, Value: p.value(depth - 1)}
}

// mutate changes the fields and then the bytes of a frame; most stay as they are.
func (p *fuzzPeer) mutate(b []byte) []byte {
	if len(b) <= 8 || p.n(12) > 0 {
		return b
	}
	if v, payload, err := wire.Decode(b[8:]); err == nil && p.n(4) > 0 {
		d, _ := v.(*wire.Described)
		if fields, ok := d.Value.(wire.List); ok {
			fields = slices.Clone(fields)
			for range 1 + p.n(2) {
				switch i := p.n(len(fields) + 1); {
				case i == len(fields) || p.n(8) == 0:
					fields = append(fields, p.value(3))
				case p.n(4) == 0:
					fields[i] = nil
				default:
					fields[i] = p.value(3)
				}
			}
			d.Value = fields
			if body, err := wire.Append(b[:8:8], d); err == nil {
				b = append(body, payload...)
			}
		}
	}
	switch p.n(4) {
	case 0:
		for range 1 + p.n(3) {
			b[8+p.n(len(b)-8)] = []byte{0, 1, 0x40, 0x45, 0x53, 0x70, 0xa0, 0xc1, 0xd1, 0xf0, 0xff, byte(p.random())}[p.n(12)]
		}
	case 1:
		at := 8 + p.n(len(b)-8)
		b = slices.Insert(b, at, byte(p.random()))
	case 2:
		b = b[:8+p.n(len(b)-8)]
	}
	switch p.n(12) {
	case 0:
		b[4] = byte(p.n(12))
	case 1:
		b[5] = byte(p.n(3))
	case 2:
		b[7] = byte(p.n(4))
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}
