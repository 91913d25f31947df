package mqtt

import "encoding/binary"

// Identifiers of properties [MQTT-2.2.2.2].
const (
	PayloadFormat       = 0x01
	MessageExpiry       = 0x02
	ContentType         = 0x03
	ResponseTopic       = 0x08
	CorrelationData     = 0x09
	SubscriptionID      = 0x0b
	SessionExpiry       = 0x11
	AssignedClientID    = 0x12
	ServerKeepAlive     = 0x13
	AuthMethod          = 0x15
	AuthData            = 0x16
	RequestProblemInfo  = 0x17
	WillDelay           = 0x18
	RequestResponseInfo = 0x19
	ResponseInfo        = 0x1a
	ServerReference     = 0x1c
	ReasonString        = 0x1f
	ReceiveMaximum      = 0x21
	TopicAliasMaximum   = 0x22
	TopicAlias          = 0x23
	MaximumQoS          = 0x24
	RetainAvailable     = 0x25
	UserProperty        = 0x26
	MaximumPacketSize   = 0x27
	WildcardAvailable   = 0x28
	SubIDsAvailable     = 0x29
	SharedAvailable     = 0x2a
)

// Types of properties.
const (
	flag   = iota + 1 // a byte, 0 or 1
	short             // two bytes
	long              // four bytes
	number            // a variable byte integer
	text
	data
	pair
)

// will stands for the will's properties in CONNECT among the packet types.
const will = 0

// acks are the packets with a reason code that answer another one.
const acks = 1<<Connack | 1<<Puback | 1<<Pubrec | 1<<Pubrel | 1<<Pubcomp | 1<<Suback | 1<<Unsuback |
	1<<Disconnect | 1<<Auth

const message = 1<<Publish | 1<<will

// A propertyRule says what a property is and where it is allowed.
type propertyRule struct {
	name    string
	typ     int
	in      uint16 // set of packet types
	notZero bool
	repeats bool
}

var propertyRules = [...]propertyRule{
	PayloadFormat:       {name: "payload-format-indicator", typ: flag, in: message},
	MessageExpiry:       {name: "message-expiry-interval", typ: long, in: message},
	ContentType:         {name: "content-type", typ: text, in: message},
	ResponseTopic:       {name: "response-topic", typ: text, in: message},
	CorrelationData:     {name: "correlation-data", typ: data, in: message},
	SubscriptionID:      {name: "subscription-identifier", typ: number, in: 1 << Subscribe, notZero: true},
	SessionExpiry:       {name: "session-expiry-interval", typ: long, in: 1<<Connect | 1<<Connack | 1<<Disconnect},
	AssignedClientID:    {name: "assigned-client-identifier", typ: text, in: 1 << Connack},
	ServerKeepAlive:     {name: "server-keep-alive", typ: short, in: 1 << Connack},
	AuthMethod:          {name: "authentication-method", typ: text, in: 1<<Connect | 1<<Connack | 1<<Auth},
	AuthData:            {name: "authentication-data", typ: data, in: 1<<Connect | 1<<Connack | 1<<Auth},
	RequestProblemInfo:  {name: "request-problem-information", typ: flag, in: 1 << Connect},
	WillDelay:           {name: "will-delay-interval", typ: long, in: 1 << will},
	RequestResponseInfo: {name: "request-response-information", typ: flag, in: 1 << Connect},
	ResponseInfo:        {name: "response-information", typ: text, in: 1 << Connack},
	ServerReference:     {name: "server-reference", typ: text, in: 1<<Connack | 1<<Disconnect},
	ReasonString:        {name: "reason-string", typ: text, in: acks},
	ReceiveMaximum:      {name: "receive-maximum", typ: short, in: 1<<Connect | 1<<Connack, notZero: true},
	TopicAliasMaximum:   {name: "topic-alias-maximum", typ: short, in: 1<<Connect | 1<<Connack},
	TopicAlias:          {name: "topic-alias", typ: short, in: 1 << Publish},
	MaximumQoS:          {name: "maximum-qos", typ: flag, in: 1 << Connack},
	RetainAvailable:     {name: "retain-available", typ: flag, in: 1 << Connack},
	UserProperty:        {name: "user-property", typ: pair, in: 1<<Auth<<1 - 1, repeats: true},
	MaximumPacketSize:   {name: "maximum-packet-size", typ: long, in: 1<<Connect | 1<<Connack, notZero: true},
	WildcardAvailable:   {name: "wildcard-subscription-available", typ: flag, in: 1 << Connack},
	SubIDsAvailable:     {name: "subscription-identifiers-available", typ: flag, in: 1 << Connack},
	SharedAvailable:     {name: "shared-subscription-available", typ: flag, in: 1 << Connack},
}

// A Property is one property of a packet. Its type decides which fields it uses: Number, or Text,
// which also holds binary data, and for a user property Name as well.
type Property struct {
	ID         byte
	Number     uint32
	Name, Text string
}

// PropertyName returns the name of a property in the standard, in lower case with hyphens.
func (p Property) PropertyName() string { return propertyRules[p.ID].name }

// IsNumber reports whether the property's value is Number.
func (p Property) IsNumber() bool { return propertyRules[p.ID].typ < text }

// Properties are the properties of a packet in order.
type Properties []Property

// Get returns the first property with an identifier.
func (ps Properties) Get(id byte) (p Property, ok bool) {
	for _, p := range ps {
		if p.ID == id {
			return p, true
		}
	}
	return Property{}, false
}

// Number returns the value of a property, or a default if it is absent.
func (ps Properties) Number(id byte, absent uint32) uint32 {
	if p, ok := ps.Get(id); ok {
		return p.Number
	}
	return absent
}

// Text returns the value of a property; empty if it is absent.
func (ps Properties) Text(id byte) string {
	p, _ := ps.Get(id)
	return p.Text
}

// properties reads the properties of a packet of a type.
func (c *cursor) properties(in int) Properties {
	p := cursor{left: c.take(c.length("length of the properties"), "properties"), err: c.err}
	var all Properties
	for len(p.left) > 0 && p.err == nil {
		id := p.length("identifier of a property")
		if id >= len(propertyRules) || propertyRules[id].name == "" {
			p.fail(malformed("no such property: %d", id))
			break
		}
		rule := propertyRules[id]
		_, again := all.Get(byte(id))
		switch {
		case rule.in&(1<<in) == 0:
			p.fail(violation("property %s where it is not allowed", rule.name))
		case again && !rule.repeats:
			p.fail(violation("property %s twice", rule.name))
		}
		one := p.property(byte(id), rule)
		if rule.notZero && one.Number == 0 {
			p.fail(violation("property %s of 0", rule.name))
		}
		all = append(all, one)
	}
	_, secret := all.Get(AuthData)
	_, method := all.Get(AuthMethod)
	answer, answers := all.Get(ResponseTopic)
	switch {
	case secret && !method:
		p.fail(violation("authentication data without a method [MQTT-3.1.2-32]"))
	case answers && !ValidName(answer.Text):
		p.fail(violation("response topic %q, which is no topic name [MQTT-3.3.2-14]", answer.Text))
	}
	c.fail(p.err)
	return all
}

func (c *cursor) property(id byte, rule propertyRule) Property {
	p := Property{ID: id}
	switch rule.typ {
	case flag:
		if p.Number = uint32(c.byte(rule.name)); p.Number > 1 {
			c.fail(violation("property %s of %d", rule.name, p.Number))
		}
	case short:
		p.Number = uint32(c.uint16(rule.name))
	case long:
		p.Number = c.uint32(rule.name)
	case number:
		p.Number = uint32(c.length(rule.name))
	case text:
		p.Text = c.text(rule.name)
	case data:
		p.Text = string(c.binary(rule.name))
	case pair:
		p.Name = c.text(rule.name)
		p.Text = c.text(rule.name)
	}
	return p
}

// append appends the properties with their length before them.
func (ps Properties) append(dst []byte) []byte {
	var all []byte
	for _, p := range ps {
		all = append(all, p.ID)
		switch propertyRules[p.ID].typ {
		case flag:
			all = append(all, byte(p.Number))
		case short:
			all = appendUint16(all, uint16(p.Number))
		case long:
			all = binary.BigEndian.AppendUint32(all, p.Number)
		case number:
			all = appendLength(all, int(p.Number))
		case pair:
			all = appendText(appendText(all, p.Name), p.Text)
		default:
			all = appendText(all, p.Text)
		}
	}
	return append(appendLength(dst, len(all)), all...)
}
