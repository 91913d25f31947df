package mqttwire

import "encoding/binary"

// PropertyID is the identifier of a property, table 2-4.
type PropertyID byte

// The properties.
const (
	PayloadFormat          PropertyID = 0x01
	MessageExpiry          PropertyID = 0x02
	ContentType            PropertyID = 0x03
	ResponseTopic          PropertyID = 0x08
	CorrelationData        PropertyID = 0x09
	SubscriptionIdentifier PropertyID = 0x0b
	SessionExpiry          PropertyID = 0x11
	AssignedClientID       PropertyID = 0x12
	ServerKeepAlive        PropertyID = 0x13
	AuthMethod             PropertyID = 0x15
	AuthData               PropertyID = 0x16
	RequestProblemInfo     PropertyID = 0x17
	WillDelay              PropertyID = 0x18
	RequestResponseInfo    PropertyID = 0x19
	ResponseInfo           PropertyID = 0x1a
	ServerReference        PropertyID = 0x1c
	ReasonString           PropertyID = 0x1f
	ReceiveMaximum         PropertyID = 0x21
	TopicAliasMaximum      PropertyID = 0x22
	TopicAlias             PropertyID = 0x23
	MaximumQoS             PropertyID = 0x24
	RetainAvailable        PropertyID = 0x25
	UserProperty           PropertyID = 0x26
	MaximumPacketSize      PropertyID = 0x27
	WildcardAvailable      PropertyID = 0x28
	SubscriptionIDs        PropertyID = 0x29
	SharedAvailable        PropertyID = 0x2a

	propertyIDs = 0x2b
)

// will stands for the properties of a will, which are a block of their own in CONNECT. No packet
// has the type 0.
const will Type = 0

// form is the type of a property's value, section 2.2.2.2.
type form byte

const (
	none     form = iota
	one           // a byte
	two           // a two byte integer
	four          // a four byte integer
	length        // a variable byte integer
	text          // UTF-8
	binaries      // bytes
	pair          // two texts
)

// Types in sets, as bits.
const (
	inConnect  = 1 << Connect
	inConnack  = 1 << Connack
	inPublish  = 1 << Publish
	inWill     = 1 << will
	inDisc     = 1 << Disconnect
	inAuth     = 1 << Auth
	inSub      = 1 << Subscribe
	inMessages = inPublish | inWill
	inAcks     = 1<<Puback | 1<<Pubrec | 1<<Pubrel | 1<<Pubcomp | 1<<Suback | 1<<Unsuback
	inAll      = inConnect | inConnack | inMessages | inDisc | inAuth | inAcks | inSub | 1<<Unsubscribe
)

// A rule says what is allowed for a property, table 2-4.
type rule struct {
	form form
	// in are the packets that may have it, many those that may have it several times.
	in, many uint16
	// least and most bound a number; most 0 means no upper bound.
	least, most uint32
}

var rules = [propertyIDs]rule{
	PayloadFormat:          {form: one, in: inMessages, most: 1},
	MessageExpiry:          {form: four, in: inMessages},
	ContentType:            {form: text, in: inMessages},
	ResponseTopic:          {form: text, in: inMessages},
	CorrelationData:        {form: binaries, in: inMessages},
	SubscriptionIdentifier: {form: length, in: inPublish | inSub, many: inPublish, least: 1},
	SessionExpiry:          {form: four, in: inConnect | inConnack | inDisc},
	AssignedClientID:       {form: text, in: inConnack},
	ServerKeepAlive:        {form: two, in: inConnack},
	AuthMethod:             {form: text, in: inConnect | inConnack | inAuth},
	AuthData:               {form: binaries, in: inConnect | inConnack | inAuth},
	RequestProblemInfo:     {form: one, in: inConnect, most: 1},
	WillDelay:              {form: four, in: inWill},
	RequestResponseInfo:    {form: one, in: inConnect, most: 1},
	ResponseInfo:           {form: text, in: inConnack},
	ServerReference:        {form: text, in: inConnack | inDisc},
	ReasonString:           {form: text, in: inConnack | inAcks | inDisc | inAuth},
	ReceiveMaximum:         {form: two, in: inConnect | inConnack, least: 1},
	TopicAliasMaximum:      {form: two, in: inConnect | inConnack},
	TopicAlias:             {form: two, in: inPublish, least: 1},
	MaximumQoS:             {form: one, in: inConnack, most: 1},
	RetainAvailable:        {form: one, in: inConnack, most: 1},
	UserProperty:           {form: pair, in: inAll, many: inAll},
	MaximumPacketSize:      {form: four, in: inConnect | inConnack, least: 1},
	WildcardAvailable:      {form: one, in: inConnack, most: 1},
	SubscriptionIDs:        {form: one, in: inConnack, most: 1},
	SharedAvailable:        {form: one, in: inConnack, most: 1},
}

// A Property is one property of a received packet.
type Property struct {
	ID PropertyID
	// Number is the value of a property that is a number.
	Number uint32
	// Text is the value of a property that is a string or binary, and the name of a user property.
	Text []byte
	// Value is the value of a user property.
	Value []byte
}

// Properties is a block of properties that was checked when it was read: a part of its packet.
type Properties []byte

// Next returns the first property and the rest of the block. ok is false at the end.
func (p Properties) Next() (first Property, rest Properties, ok bool) {
	first, size, err := property(p)
	if size == 0 || err != nil {
		return first, nil, false
	}
	return first, p[size:], true
}

// Number returns the value of a property that is a number. ok is false without the property.
func (p Properties) Number(id PropertyID) (n uint32, ok bool) {
	first, ok := p.find(id)
	return first.Number, ok
}

// Text returns the value of a property that is a string or binary, nil without the property.
func (p Properties) Text(id PropertyID) []byte {
	first, _ := p.find(id)
	return first.Text
}

func (p Properties) find(id PropertyID) (Property, bool) {
	for {
		first, rest, ok := p.Next()
		if !ok || first.ID == id {
			return first, ok
		}
		p = rest
	}
}

// property reads the property at the beginning of p, and its size. The size is 0 for an empty p.
func property(p []byte) (v Property, size int, err error) {
	if len(p) == 0 {
		return v, 0, nil
	}
	v.ID = PropertyID(p[0]) // all identifiers have one byte
	if v.ID >= propertyIDs {
		return v, 0, ErrProperty
	}
	value := p[1:]
	switch rules[v.ID].form {
	case none:
		return v, 0, ErrProperty
	case one:
		if len(value) >= 1 {
			v.Number, size = uint32(value[0]), 1
		}
	case two:
		if len(value) >= 2 {
			v.Number, size = uint32(binary.BigEndian.Uint16(value)), 2
		}
	case four:
		if len(value) >= 4 {
			v.Number, size = binary.BigEndian.Uint32(value), 4
		}
	case length:
		v.Number, size, err = varint(value)
	case text, binaries:
		v.Text, size = field(value)
	case pair:
		if v.Text, size = field(value); size > 0 {
			n := 0
			if v.Value, n = field(value[size:]); n > 0 {
				size += n
			} else {
				size = 0
			}
		}
	}
	switch {
	case err != nil:
		return v, 0, err
	case size == 0:
		return v, 0, ErrIncomplete
	}
	return v, 1 + size, nil
}

// properties reads the length of a block, the block, which it checks for packets of type t, and
// what follows it.
func properties(t Type, p []byte) (block Properties, rest []byte, err error) {
	n, size, err := varint(p)
	switch {
	case err != nil:
		return nil, nil, err
	case size == 0 || int(n) > len(p)-size:
		return nil, nil, ErrShort
	}
	end := size + int(n)
	block, rest = p[size:end:end], p[end:]
	return block, rest, check(t, block)
}

// Check returns the error for a value that the standard does not allow.
func (v *Property) Check() error {
	switch r := &rules[v.ID]; {
	case v.Number < r.least || r.most > 0 && v.Number > r.most:
		return ErrRange
	case (r.form == text || r.form == pair) && !(wellFormed(v.Text) && wellFormed(v.Value)):
		return ErrString
	case v.ID == ResponseTopic && !ValidTopic(v.Text): // [MQTT-3.3.2-14]
		return ErrTopic
	}
	return nil
}

// check checks a block of properties of a packet of type t. The values in a PUBLISH are left to its
// reader: brokers pass on what another client sent, so they say nothing about the connection.
func check(t Type, p []byte) error {
	seen, set := uint64(0), uint16(1)<<t
	for len(p) > 0 {
		v, size, err := property(p)
		if err != nil {
			return err
		}
		switch r := &rules[v.ID]; {
		case r.in&set == 0:
			return ErrProperty
		case seen>>v.ID&1 != 0 && r.many&set == 0:
			return ErrTwice
		case t != Publish:
			if err := v.Check(); err != nil {
				return err
			}
		}
		seen |= 1 << v.ID
		p = p[size:]
	}
	if seen>>AuthData&1 != 0 && seen>>AuthMethod&1 == 0 {
		return ErrMethod
	}
	return nil
}

// AppendNumber appends a property that is a number.
func AppendNumber(dst []byte, id PropertyID, n uint32) []byte {
	dst = append(dst, byte(id))
	switch rules[id].form {
	case one:
		return append(dst, byte(n))
	case two:
		return binary.BigEndian.AppendUint16(dst, uint16(n))
	case length:
		return appendVarint(dst, int(n))
	default:
		return binary.BigEndian.AppendUint32(dst, n)
	}
}

// AppendString appends a property that is a string, for which ValidText is true, or binary, with
// MaxText bytes at most.
func AppendString(dst []byte, id PropertyID, s string) []byte {
	return appendField(append(dst, byte(id)), s)
}

// AppendPair appends a user property. ValidText is true for both texts.
func AppendPair(dst []byte, name, value string) []byte {
	return appendField(AppendPairName(dst, name), value)
}

// AppendPairName appends a user property up to its name. The caller appends the length of the
// value, as AppendID does, and the value.
func AppendPairName(dst []byte, name string) []byte { return AppendString(dst, UserProperty, name) }
